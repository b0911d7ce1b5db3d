"""`gpudash run` from outside: the script is as if it ran alone."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest

from gpudash import rendezvous
from gpudash.cli import attach
from gpudash.cli.attach import choose
from gpudash.cli.dashboard import ScreenResult
from gpudash.cli.main import main
from gpudash.cli.user_training import UserTraining
from gpudash.errors import UsageError
from gpudash.run import keeper, runs
from gpudash.run.command_process import Foreground
from gpudash.run.user_command import understand
from gpudash.snapshot import Snapshot
from tests.cli.conftest import GPUDASH, ROOT, TRAINING, ended, in_terminal, script, shows
from tests.waiting import PATIENCE_S, done, until

pytestmark = pytest.mark.usefixtures("private")

RUN = [*GPUDASH, "run"]


@pytest.fixture
def gpudash(capfd):
    """Return a function that calls gpudash; it returns the exit code and the two outputs."""

    def call(*words):
        code = main([*map(str, words)])
        output, errors = capfd.readouterr()
        return SimpleNamespace(returncode=code, stdout=output, stderr=errors)

    return call


# ── as if it ran alone ──────────────────────────────────────────────────────────────────

PLAIN = """
import os, sys
print(ascii(sys.argv), __file__, __name__, os.getcwd(), sys.path[0], sys.stdin.read())
print("to stderr", file=sys.stderr)
"""


@pytest.mark.parametrize("how", [["--watch"], ["--record", "r.csv"]])
def test_its_words_and_streams_are_its_own(tmp_path, how):
    words = [script(tmp_path, PLAIN), "--record", "x", "-m", "--", "--help", "-q", b"b\xe4r"]
    plain = done(sys.executable, *words, input="typed", cwd=tmp_path)
    ours = done(*RUN, *how, *words, input="typed", cwd=tmp_path)
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode) == (plain.stdout, 0)
    its_own, summary = ours.stderr.split("gpudash: no training step was seen")
    assert (its_own, summary.count("\n")) == (plain.stderr, 1)
    assert not list(tmp_path.glob("r.*"))  # where nothing trained no empty recording is left


@pytest.mark.parametrize("how", [["--watch", "-q"], ["-q"]])
def test_with_quiet_nothing_is_printed(tmp_path, gpudash, how):
    ours = gpudash("run", *how, script(tmp_path, "print('x')"))
    assert (ours.stdout, ours.stderr) == ("x\n", "")


def test_a_module_and_any_command_run_too(tmp_path, gpudash):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("import sys; print(sys.argv[1:])")
    assert gpudash("run", "--watch", "-m", "pkg.train", "-m", "x").stdout == "['-m', 'x']\n"
    assert gpudash("run", "--watch", "--", "echo", "--watch").stdout == "--watch\n"


def test_a_python_before_the_script_is_the_one_that_runs_it(tmp_path, gpudash):
    other = tmp_path / "python3.99"
    other.write_text(f'#!/bin/sh\necho other\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o700)
    words = other, script(tmp_path, "import sys; print(sys.argv[1:])"), "-q"
    assert gpudash("run", "--watch", *words).stdout == "other\n['-q']\n"
    assert "train.py" in understand([str(other), "-u", "train.py"]).name


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("raise ValueError", 1),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.kill(os.getpid(), 15)", 143),
    ],
)
def test_its_exit_code_is_ours_as_a_shell_shows_it(tmp_path, gpudash, end, code):
    assert gpudash("run", "--watch", script(tmp_path, end)).returncode == code


def test_the_environment_names_the_run_and_where_gpudash_is_found(tmp_path, gpudash):
    code = "import os, pathlib; run = pathlib.Path(os.environ['_GPUDASH_RUN'])\n"
    code += "print(oct(run.stat().st_mode & 0o777), os.environ['PYTHONPATH'])"
    found = gpudash("run", "--watch", script(tmp_path, code)).stdout.strip().split(maxsplit=1)
    assert found == ["0o700", f"{ROOT / 'gpudash' / 'inject'}:{ROOT}"]


def test_a_script_may_run_gpudash_itself(tmp_path, gpudash):
    ours = gpudash("run", "--watch", "--", *RUN, "--record", "r.csv", TRAINING, "--steps", "30")
    assert ours.returncode == 0, ours.stderr
    assert "scripted_training.py" in (tmp_path / "r.csv").read_text()
    info = gpudash("run", "--watch", "--", *GPUDASH, "info", "--json")
    assert json.loads(info.stdout)["problem"] is None


def test_nothing_is_left_behind(tmp_path, short_path, gpudash):
    gpudash("run", "--watch", script(tmp_path, ""))
    gpudash("run", "--record", "no/folder.csv", script(tmp_path, ""))
    assert not list(short_path.glob("gpudash-run-*"))


# ── signals ─────────────────────────────────────────────────────────────────────────────

PATIENT = """
import os, signal, time
saving = []
def save(*_):  # print() may be under way
    saving.append(1)
    os.write(1, b"saving %d\\n" % len(saving))
signal.signal(signal.SIGINT, save)
print("ready", flush=True)
while len(saving) < 2:
    time.sleep(0.01)
time.sleep(0.2)
print("saved", flush=True)
raise SystemExit(5)
"""


def test_ctrl_c_is_the_scripts_own_also_a_second_one(tmp_path):
    terminal = in_terminal([*RUN, "--watch", script(tmp_path, PATIENT)], "ready")
    terminal.sendintr()
    shows(terminal, "saving 1").sendintr()
    shows(terminal, "saving 2", "saved", r"gpudash: train\.py exited with 5")
    assert ended(terminal).exitstatus == 5


def test_after_ctrl_c_gpudash_dies_of_it_so_that_a_shells_loop_ends(tmp_path):
    code = "import time; print('ready', flush=True); time.sleep(60)"
    terminal = in_terminal([*RUN, "--watch", script(tmp_path, code)], "ready")
    terminal.sendintr()
    shows(terminal, "KeyboardInterrupt", r"gpudash: train\.py was interrupted")
    assert ended(terminal).signalstatus == signal.SIGINT


def test_a_run_that_is_interrupted_before_it_trains_leaves_no_recording(tmp_path):
    end = script(tmp_path, "import os; os.kill(os.getpid(), 2)")
    done(*RUN, "--record", "x.csv", end, cwd=tmp_path)
    assert not list(tmp_path.glob("x.*"))


CATCHES = f"""
import runpy, sys
try:
    sys.argv = ["train.py"]
    runpy.run_path({TRAINING!r}, run_name="__main__")
except KeyboardInterrupt:
    sys.exit(1)  # as torchrun does
"""


@pytest.mark.parametrize("catches", [False, True])
def test_the_report_of_an_interrupted_run_tells_of_no_failure(tmp_path, catches):
    words = [script(tmp_path, CATCHES)] if catches else [TRAINING]
    ours = subprocess.Popen(
        [*RUN, "--record", "r.csv", *words], cwd=tmp_path, process_group=0, stdout=subprocess.PIPE
    )
    with ours:
        until((tmp_path / "r.csv").exists)
        until(lambda: (tmp_path / "r.csv").read_text().count("\n") > 1)
        os.killpg(ours.pid, signal.SIGINT)
    known = json.loads((tmp_path / "r.json").read_text())
    assert (known["failures"], known["complete"]) == ([], True)
    assert main(["report", str(tmp_path / "r.csv"), "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "Failures" not in page
    how = "train.py exited with 1" if catches else "scripted_training.py was interrupted"
    assert how in page


def test_input_works_and_a_terminal_is_a_terminal(tmp_path):
    code = "import sys; print(sys.stdout.isatty(), input('name? '))"
    terminal = in_terminal([*RUN, "--watch", script(tmp_path, code)], r"name\?")
    terminal.sendline("Eve")
    ended(shows(terminal, "True Eve"))


# by the second a scheduler asks for a checkpoint before the time is over
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_to_gpudash_are_passed_on(tmp_path, number):
    code = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda n, _: sys.exit(n))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    ours = subprocess.Popen([*RUN, "--watch", script(tmp_path, code)], stdout=subprocess.PIPE)
    with ours:
        assert ours.stdout.readline() == b"ready\n"
        ours.send_signal(number)
        assert ours.wait(PATIENCE_S) == number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_comes_while_the_command_starts_is_passed_on(tmp_path, number):
    held = Mock(spec=Foreground, wait=lambda: 0)

    def start(*_words):
        signal.raise_signal(number)
        return held

    UserTraining(understand([script(tmp_path, "")]), start).run_for(
        SimpleNamespace(running=nullcontext, set_parting=lambda _how: None)
    )
    held.signal.assert_called_once_with(number)


def test_a_killed_gpudash_leaves_the_script_to_its_end(tmp_path):
    code = "import os; print(os.getpid(), flush=True); input(); open('end', 'w').write('whole')"
    ours = subprocess.Popen(
        [*RUN, "--record", "r.csv", script(tmp_path, code)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        cwd=tmp_path,
    )
    with ours:
        pid = int(ours.stdout.readline())
        (run,) = until(runs.living)
        with pytest.raises(UsageError, match="watched by another gpudash"):
            run.open()
        ours.kill()
        ours.wait()
        assert keeper.began_ticks(pid) >= 0
        held = run.open()  # it can be attached to, without its terminal
        held.read()
        assert not held.over
        with pytest.raises(UsageError, match="watched by another gpudash"):
            run.open()  # one at a time
        ours.stdin.write(b"\n")
        ours.stdin.flush()
        until(lambda: held.read() == b"" and held.over)
    assert (tmp_path / "end").read_text() == "whole"
    assert runs.living() == []  # and what it left is removed


# ── what is measured ────────────────────────────────────────────────────────────────────


def test_a_training_is_recorded(tmp_path, gpudash):
    path = tmp_path / "r.csv"
    to = ["--to", f"jsonl:{tmp_path / 'rows.jsonl'}"]
    ours = gpudash("run", "--record", path, *to, TRAINING, "--steps", "150", "--exit", "3")
    assert ours.returncode == 3
    last = ours.stderr.splitlines()[-1]
    assert last.startswith("gpudash: scripted_training.py exited with 3; 147 steps, ")
    recorded, limit = last.split("; ")[-2:]  # which limit, the machine decides
    assert recorded == f"recorded to {path}"
    assert limit.endswith(" % of the training time")
    header, *rows = path.read_text().splitlines()
    workload = header.split(",").index("workload")
    assert {row.split(",")[workload] for row in rows} == {"scripted_training.py"}
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(rows)


def test_trainings_one_after_another_are_counted_all_with_a_line_each(tmp_path, gpudash):
    code = (
        f"import subprocess, sys; words = [sys.executable, {TRAINING!r}, '--steps']\n"
        "for steps in '60', '90', '120': subprocess.run([*words, steps])"
    )
    ours = gpudash("run", "--watch", script(tmp_path, code))
    *each, last = [line for line in ours.stderr.splitlines() if line.startswith("gpudash: ")]
    counts = [int(line.split()[3]) for line in each]
    assert [line.split(":")[1] for line in each] == [f" training {number}" for number in (1, 2, 3)]
    assert all(0 < count <= most for count, most in zip(counts, (60, 90, 120), strict=True))
    assert counts == sorted(counts)
    assert last.startswith(f"gpudash: 3 trainings, {sum(counts)} steps, ")


FULL = "recording to r.jsonl ends: file too large"


@pytest.mark.parametrize(
    ("quiet", "said"), [([], f"recorded to r.csv; {FULL}"), (["-q"], f"gpudash: {FULL}")]
)
def test_a_full_disk_ends_the_recording_and_not_the_script(quiet, said):
    words = shlex.join(
        [*RUN, *quiet, "--record", "r.csv", TRAINING, "--steps", "150", "--exit", "3"]
    )
    ours = done("bash", "-c", f"ulimit -f 5; exec {words}")
    assert ours.returncode == 3
    *others, last = ours.stderr.splitlines()
    assert said in last
    assert others == ["done"]


# ── ab ──────────────────────────────────────────────────────────────────────────────────

PAIRS = ("ab", "--pairs", "3")


def test_a_lever_that_is_found_after_some_steps_is_waited_for(gpudash):
    ours = gpudash(*PAIRS, "--lever", "precision=script,bf16", "--json", "--", TRAINING, "--finds")
    verdict = json.loads(ours.stdout)
    assert (verdict["lever"], verdict["a"], verdict["b"]) == ("precision", "script", "bf16")


@pytest.mark.parametrize(
    ("words", "code", "how"),
    [
        (["--finds", "--steps", "10"], 1, "has ended"),  # before its levers are known
        (["--steps", "40", "--exit", "3"], 3, "exited with 3"),
    ],
)
def test_a_training_that_ends_first_has_no_verdict_and_its_own_exit_code(gpudash, words, code, how):
    ours = gpudash(*PAIRS, "--lever", "precision=script,bf16", "--", TRAINING, *words)
    (said,) = (line for line in ours.stderr.splitlines() if "no verdict" in line)
    assert said.startswith(f"gpudash: no verdict: scripted_training.py {how}")
    assert ours.returncode == code


@pytest.mark.parametrize(
    ("lever", "why"),
    [
        ("compile=off,on", "unknown lever 'compile'; valid: num_workers, precision"),
        (
            "frozen_precision=script,bf16",
            "lever frozen_precision cannot be moved here: no step has called a model without an",
        ),
        ("precision=script,tf32", "lever precision cannot be moved to tf32 here: TF32 needs a GPU"),
        (
            "num_workers=script,2",
            "lever num_workers is 2 in the script already; an A/B needs another",
        ),
    ],
)
def test_an_impossible_comparison_is_reported_and_ends_the_command(gpudash, lever, why):
    ours = gpudash(*PAIRS, "--lever", lever, "--", TRAINING)
    assert ours.returncode == 2
    assert f"gpudash: {why}" in ours.stderr.splitlines()[-1]
    assert runs.living() == []


AGAIN = (*PAIRS, "--lever", "num_workers=2,8", "--starts")
SLOWLY = ["--step-s", "0.001"]


def test_with_starts_the_same_command_runs_again_and_again_and_that_is_said_first(
    tmp_path, gpudash
):
    code = f"""
import runpy, sys
open("runs", "a").write("run " + " ".join(sys.argv[1:]) + "\\n")
runpy.run_path({TRAINING!r}, run_name="__main__")
"""
    ours = gpudash(*AGAIN, "2", "--json", "--", script(tmp_path, code), *SLOWLY)
    assert ours.stderr.splitlines()[0] == (
        "gpudash: train.py will run 2 times, one after the other, by the same command: "
        "the files that it writes are written again each time"
    )
    assert (tmp_path / "runs").read_text() == "run --step-s 0.001\n" * 2
    verdict = json.loads(ours.stdout)
    assert len(verdict["starts"]) == 2
    assert verdict["low"] <= verdict["change"] <= verdict["high"]
    assert ours.returncode == 0
    assert runs.living() == []


def test_ctrl_c_keeps_the_starts_until_then():
    begun = ("start 2 of 9: .* 3 pairs", r"training \d+")
    terminal = in_terminal([*GPUDASH, *AGAIN, "9", "--", TRAINING, *SLOWLY], *begun)
    terminal.sendintr()
    verdict = "2 starts, 6 pairs, .*; interrupted before its 9 starts"
    shows(terminal, "gpudash: no verdict in start 3 of 9: interrupted", verdict, "the starts: ")
    assert ended(terminal).exitstatus == 130
    assert runs.living() == []


# ── bad input ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--watch", "nosuch.py"], "no such file: nosuch.py"),
        (["--watch", f"{TRAINING[:-3]}s.py"], "; did you mean scripted_training.py?"),
        (["--watch", "python9.9", TRAINING], "command not found: python9.9"),
        (["--python", "x", "python3", TRAINING], "--python x does not go with python3; valid: one"),
        (["--record", "-", TRAINING], "--record - is not valid: standard output is the script's"),
        (["--watch", "--record", "r.csv", TRAINING], "--record does not go with --watch"),
        (["--live", TRAINING], "--live goes with --record FILE.csv"),
        (["--python", "nosuch", TRAINING], "--python not found: nosuch"),
        (["--epochs", "3", TRAINING], "unknown option '--epochs'"),
    ],
)
def test_errors_are_one_line(words, why, refused):
    assert why in refused("run", *words)


@pytest.mark.parametrize("words", [["run", "--watch", "x.py"], ["run", "x.py"], ["attach"]])
def test_a_folder_that_cannot_hold_runs_is_named_before_anything_starts(
    monkeypatch, short_path, refused, words
):
    (short_path / "file").touch()
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path / "file"))
    Path("x.py").write_text("print('started')")
    assert refused(*words).startswith(f"gpudash: GPUDASH_RUN_DIR: {short_path}/file is no folder; ")


# ── attach ──────────────────────────────────────────────────────────────────────────────


def a_run(name, pid):
    facts = runs.Facts(
        name=name,
        command=("python", name),
        cwd="/home/eve",
        pid=pid,
        is_kept=True,
        processes=((pid, 1), (pid + 1, 1)),
        space="",
        started_s=0.0,
    )
    return runs.UserRun(None, facts)


def recorded(name, pid):
    """A run that another gpudash records."""
    run = a_run(name, pid)
    me = (os.getpid(), keeper.began_ticks(os.getpid()))
    return runs.UserRun(
        None, msgspec.structs.replace(run.facts, is_kept=False, processes=((pid, 1), me))
    )


@pytest.mark.parametrize(
    ("word", "living", "chosen"),
    [
        (None, [a_run("train.py", 7)], 0),
        ("train.py", [a_run("gan.py", 8), a_run("train.py", 7)], 1),
        ("7", [a_run("train.py", 8), a_run("train.py", 7)], 1),
        (None, [recorded("train.py", 7), a_run("train.py", 7)], 1),
        (None, [recorded("train.py", 7)], 0),
        ("tr\udcff.py", [a_run("train.py", 7), a_run("tr\ufffd.py", 9)], 1),  # as shells pass it
    ],
)
def test_the_only_run_need_not_be_named(word, living, chosen):
    assert choose(word, living) is living[chosen]


@pytest.mark.parametrize(
    ("word", "names", "why"),
    [
        (None, [], "no command of gpudash run lives; .*%load_ext gpudash"),
        ("c.py", ["a.py"], r"no command 'c.py' runs; valid: the name or process id of 0 \(a.py"),
        ("c.py", ["a.py"], r"; looked in {folder}, GPUDASH_RUN_DIR names another folder$"),
        (None, [], r"; looked in {folder}, GPUDASH_RUN_DIR names another folder$"),
        ("a.py", ["a.py", "a.py"], "2 commands run, one has to be named by its process id"),
    ],
)
def test_an_ambiguous_run_is_refused(word, names, why, short_path):
    with pytest.raises(UsageError, match=why.replace("{folder}", str(short_path))):
        choose(word, [a_run(name, at) for at, name in enumerate(names)])


def begun_as(name, pid):
    keeper.write_facts(rendezvous.begin().path, name=name, command=[], pid=pid, is_kept=True)


def test_without_a_name_each_run_is_listed_with_where_and_since_when(private, printed):
    with subprocess.Popen(["sleep", "600"]) as over:
        begun_as("over.py", over.pid)
        begun_as("lives.py", os.getpid())
        over.kill()
    _, ended, lives, how = printed("attach").splitlines()
    since = r"\d\d \w{3} \d\d:\d\d"
    assert re.fullmatch(rf"{os.getpid()} +lives.py +{since} +0:\d\d:\d\d +{private}", lives)
    assert re.fullmatch(rf"{over.pid} +over.py +{since} +has ended +{private}", ended)
    assert how == "gpudash attach PROCESS opens the dashboard over one"


def test_a_name_of_what_has_ended_says_so(private, refused):
    code = "from gpudash import rendezvous; from gpudash.run import keeper; import os; "
    code += "facts = dict(name='over.py', command=[], pid=os.getpid(), is_kept=True); "
    code += "keeper.write_facts(rendezvous.begin().path, **facts)"
    for word in ["over.py"], []:
        done(sys.executable, "-c", code)
        assert re.search(
            r"\d+ \(over.py in .*\) has ended; no command .* lives", refused("attach", *word)
        )


def test_a_run_of_another_node_is_named(monkeypatch):
    facts = msgspec.structs.replace(a_run("train.py", 7).facts, host="gpu3")
    monkeypatch.setattr(attach, "elsewhere", lambda: [facts])
    with pytest.raises(UsageError, match="valid: gpudash attach where one does: train.py on gpu3"):
        choose(None, [])


@pytest.mark.parametrize(
    ("exit_code", "is_lost", "ours", "said"),
    [
        (-2, False, 130, ""),
        (3, False, 3, ""),
        (0, False, 0, ""),
        (None, False, 0, "gpudash attach, as train.py runs on\n"),
        (None, True, 1, "gpudash: the terminal is gone\n"),  # not as if it had succeeded
    ],
)
def test_attach_ends_as_run_does_with_the_scripts_own_code(
    monkeypatch, capsys, exit_code, is_lost, ours, said
):
    is_over = is_lost or exit_code is not None
    job = SimpleNamespace(
        name="train.py",
        last_lines=(),
        close=lambda: None,
        how_it_ended=lambda: "the terminal is gone",
        held=SimpleNamespace(exit_code=exit_code, lost=is_lost, over=is_over, prints_to=""),
    )
    for name, value in (
        (
            "choose",
            SimpleNamespace(facts=a_run("train.py", 7).facts, place=None, open=lambda: None),
        ),
        ("listen", None),
        ("TrainingJob", job),
        ("show", ScreenResult(0, Snapshot(workload="train.py"))),
        ("on_terminal", True),
    ):
        monkeypatch.setattr(attach, name, lambda *_, _value=value, **__: _value)
    assert attach.main(SimpleNamespace(run=None, rate=1.0, command=(), price=None)) == ours
    printed = capsys.readouterr().err
    assert printed.endswith(said)
    assert ("runs on" in printed) == (not is_over)
