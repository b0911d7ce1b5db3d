"""`gpudash run --listen` and `--connect` from outside: two nodes of one machine."""

import json
import os
import re
import signal
import subprocess
import sys
from unittest.mock import Mock

import pytest

from gpudash.cli.main import main
from gpudash.cli.stdout import ask
from tests.cli.conftest import GPUDASH, TRAINING, ended, in_terminal, script, shows
from tests.waiting import PATIENCE_S, done, free_port

pytestmark = pytest.mark.usefixtures("private")

RUN = [*GPUDASH, "run"]
TOKEN = "a token of the tests"


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return str(path)


def test_a_recording_has_the_ranks_of_both_nodes(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUDASH_TOKEN", TOKEN)
    port, steps, ended = free_port(), ("--steps", "300"), tmp_path / "the_other_has_ended"
    words = [TRAINING, *steps, "--late", str(ended)]
    listening = subprocess.Popen(
        [*RUN, "--listen", str(port), "--record", "r.csv", "--every-step", *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    with listening:
        assert listening.stderr.readline() == f"gpudash listens on 127.0.0.1:{port}\n"
        words = (*RUN, "--connect", f"127.0.0.1:{port}", TRAINING, *steps)
        there = done(*words, "--rank", "1", "--exit", "3")
        ended.touch()
        assert listening.wait(PATIENCE_S) == 0
    assert (there.returncode, there.stderr) == (3, "done\n")
    assert re.fullmatch(r"training \d+\n", there.stdout)
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    messages = [line for line in lines if isinstance(line, list) and isinstance(line[-1], dict)]
    assert {one[1] for one in messages if one[-1].get("type") == "Progress"} == {0, 1}
    nodes = {one[-1].get("process", {}).get("node") for one in messages}
    assert {*filter(None, nodes)} == {f"another {os.uname().nodename}"}


def test_a_new_token_is_shown_once_and_no_script_knows_one(tmp_path, monkeypatch, capfd):
    code = "import os, sys; sys.exit('GPUDASH_TOKEN' in os.environ)"
    words = ("run", "--watch", "-q", "--listen", "0", script(tmp_path, code))

    def said():
        assert main(words) == 0
        return capfd.readouterr().err

    form = r"gpudash listens on 127\.0\.0\.1:\d+; for the other nodes: GPUDASH_TOKEN=(\S{32})\n"
    one, other = (re.fullmatch(form, said())[1] for _ in range(2))
    assert one != other
    monkeypatch.setenv("GPUDASH_TOKEN", TOKEN)
    assert said() == ""


def test_it_waits_before_the_screen_hides_a_new_token(tmp_path):
    words = [*RUN, "--listen", "0", script(tmp_path, "import time; time.sleep(60)")]
    texts = (r"GPUDASH_TOKEN=\S{32}", "Enter opens the dashboard")
    terminal = in_terminal(words, *texts, dimensions=(40, 120))
    assert "\x1b[?1049h" not in terminal.before
    terminal.send("\r")
    shows(terminal, r"\x1b\[\?1049h", "starting").kill(signal.SIGKILL)
    terminal.close()


def test_ctrl_c_before_the_screen_starts_nothing(tmp_path):
    code = f"open({str(tmp_path / 'started')!r}, 'w')"
    words = [*RUN, "--listen", "0", script(tmp_path, code)]
    terminal = in_terminal(words, "Enter opens the dashboard")
    terminal.sendintr()
    assert "Traceback" not in ended(terminal).before
    assert not (tmp_path / "started").exists()


def test_a_question_is_looked_at_again_while_nobody_types(monkeypatch):
    nothing_typed, _ = os.pipe()
    keyboard = Mock(fileno=Mock(side_effect=[nothing_typed, nothing_typed, KeyboardInterrupt]))
    monkeypatch.setattr(sys, "stdin", keyboard)
    with pytest.raises(KeyboardInterrupt):
        ask("Go on? ")
    assert not keyboard.readline.called  # it would not hear a signal that came just before it


def test_without_a_listener_one_line_is_printed_and_the_script_runs(tmp_path, token_file):
    address = f"127.0.0.1:{free_port()}"
    code = "import sys, time; print(sys.stdin.read(), sys.argv); time.sleep(1); sys.exit(7)"
    path = script(tmp_path, code)
    ours = done(*RUN, "--connect", address, "--token-file", token_file, path, "x", input="typed")
    assert (ours.returncode, ours.stdout) == (7, f"typed {[path, 'x']}\n")
    assert ours.stderr == (
        f"gpudash: cannot connect to {address}: Connection refused; "
        "the training goes on, unwatched\n"
    )


def test_nothing_is_left_behind(tmp_path, short_path, token_file):
    words = ["run", "--connect", f"127.0.0.1:{free_port()}", "--token-file", token_file]
    for command in ([script(tmp_path, "")], ["--", "/dev/null/none"]):
        main([*words, *command])
    assert not list(short_path.glob("gpudash-run-*"))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--listen", "x"], "--listen x is not valid; valid: [HOST:]PORT"),
        (["--listen", "." * 70 + ":7"], "that is no host's name"),
        (["--listen", "no-such-host.invalid:7"], "cannot listen on no-such-host.invalid:7: "),
        (["--connect", "7070"], "--connect 7070 is not valid; valid: HOST:PORT"),
        (["--connect", "gpu1:7070"], "--connect needs the token of the gpudash that listens"),
        (
            ["--connect", "no-such-host.invalid:7", "--token-file", "TOKEN"],
            "cannot connect to no-such-host.invalid:7: ",
        ),
        (["--connect", "gpu1:7", "--token-file", "none"], "cannot read --token-file none: "),
        (["--connect", "gpu1:7", "--token-file", "OPEN"], "others can read --token-file "),
        (["--listen", "0", "--token-file", "OPEN"], "others can read --token-file "),
        (["--token-file", "TOKEN"], "--token-file goes with --listen or --connect"),
        (["--listen", "0", "--connect", "gpu1:7"], "--listen and --connect do not go together"),
        (["--connect", "gpu1:7", "--record", "r.csv"], "--connect"),
        (["--connect", "gpu1:7", "--live"], "--live goes with --record FILE.csv"),
    ],
)
def test_errors_are_one_line_and_start_nothing(tmp_path, token_file, words, why, refused):
    (tmp_path / "open").write_text(TOKEN)
    (tmp_path / "open").chmod(0o644)
    names = {"TOKEN": token_file, "OPEN": str(tmp_path / "open")}
    words = [names.get(word, word) for word in words]
    how = [] if "--connect" in words else ["--watch"]
    assert why in refused("run", *words, *how, script(tmp_path, "print('started')"))
