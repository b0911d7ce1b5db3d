"""What a verb starts to measure: a training of either kind is measured, or it is said why not.

All of it ends with that, and with gpudash.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gpudash.cli.main import main
from gpudash.compare import experiment
from gpudash.protocol.training import Failed
from tests.cli.conftest import GPUDASH, TRAINING, ended, in_terminal, script, shows
from tests.scripted_session import ScriptedSession, called
from tests.waiting import until

TRAIN = shlex.join([sys.executable, TRAINING, "--step-s", "0.001", "--until", "never"])
PYTHON = shlex.quote(sys.executable)
AB = ["ab", "--lever", "num_workers=2,8", "--pairs", "3"]
VERBS = {
    "ab": AB,
    "ab --starts": [*AB, "--starts", "2"],
    "why": ["why", "--seconds", "1"],
    "tune": ["tune", "--fresh", "--levers", "num_workers", "--budget", "5"],
    "profile": ["profile"],
}
MISSING = {"why": "answer", "profile": "profile"}
"""What there is not without a training; of the others, a verdict."""


@pytest.fixture(autouse=True)
def folder(private, short_path, monkeypatch):
    """Return the folder of the runs: each process that belongs to one has it in its environment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(private))
    yield short_path
    for pid in living(short_path):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def living(folder):
    """Return the processes of runs in this folder, gpudash's too, with their command lines."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(folder) in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_text().split("\0")
    return found


# ── a training of either kind ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", VERBS)
def test_it_is_measured_and_ended(verb, training, printed, folder, monkeypatch):
    monkeypatch.setattr(experiment, "RUN_S", 0.05)
    found = json.loads(printed(*VERBS[verb], "--json", "-q", *training))
    assert found["workload"] == Path(training["--" in training]).name
    assert not living(folder)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ([TRAINING, "--steps", "0", "--exit", "3"], 3, "scripted_training.py exited with 3"),
        (["true"], 1, "no training step was seen: gpudash was not loaded"),
    ],
    ids=["no step", "not Python"],
)
def test_a_command_that_fails_or_never_trains_is_said_in_a_line(verb, words, code, why, capfd):
    assert main([*VERBS[verb], "-q", "--", *words]) == code
    said = capfd.readouterr().err
    where = " in start 1 of 2" * ("--starts" in verb)
    missing = f"no {MISSING.get(verb, 'verdict')}{where}"
    assert said.splitlines()[-1].startswith(f"gpudash: {missing}: {why}")
    assert said.count(why) == 1
    assert not list(Path().glob("*.json"))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("kind", "code"), [("bad_setting", 2), ("out_of_memory", 2), ("error", 1)])
def test_a_workload_that_fails_has_an_exit_code_by_how(verb, kind, code, capsys):
    failing = ScriptedSession(failure=Failed(kind=kind, sentence="it cannot be"))
    assert called(*VERBS[verb], "-q", "encdec", trains=[failing]) == code
    said = "gpudash: it cannot be" + "; that was start 1 of 2" * ("--starts" in verb)
    assert capsys.readouterr() == ("", f"{said}\n")


COMMAND = ("--", "train.py")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["ab", "encdec", "--lever", "pipelined=on"], "NAME=A,B with two values"),
        (["ab", "encdec", "--lever", "batch_size=8,16,32"], "NAME=A,B with two values"),
        (
            ["ab", "encdec", "--lever", "model_scale=auto,small"],
            "auto stands for another value, name that",
        ),
        (
            ["ab", "encdec", "--lever", "piped=off,on"],
            "unknown lever 'piped'; valid: pipelined, batch_size",
        ),
        (["ab", "encdec", "--lever", "pipelined=off,yes"], "'yes' is not valid; valid: off, on"),
        (["ab", "encdec", "--lever", "pipelined"], "valid: off, on"),
        (["ab", "encdec", "--lever", ""], "unknown lever ''; valid: pipelined"),
        (
            ["ab", "encdec", "--lever", "seed=1,2", "--set", "seed=1"],
            "lever seed is both set and compared; valid: one of the two",
        ),
        (
            ["ab", "--lever", "num_workers=2", *COMMAND],
            "--lever num_workers=2 is not valid; valid: NAME=A,B",
        ),
        (
            ["ab", "--lever", "a=1,2", "--set", "seed=1", *COMMAND],
            "--set does not go with a command of yours",
        ),
        (
            ["ab", "--lever", "a=1,2", "encdec", *COMMAND],
            "encdec does not go with a command of yours",
        ),
        (
            ["ab", "--lever", "num_worker=1,2", *COMMAND],
            "lever 'num_worker' is not valid; valid: num_workers, pref",
        ),
        (
            ["ab", "--lever", "num_workers=2,x", *COMMAND],
            "num_workers: 'x' is not valid; valid: script, a whole num",
        ),
        (["ab", "--lever", "num_workers=0,257", *COMMAND], "lever num_workers: '257' is not valid"),
        (
            ["ab", "--lever", "precision=script,bf61", *COMMAND],
            "lever precision: 'bf61' is not valid; valid: script",
        ),
        (
            ["ab", "--lever", "pin_memory=on,", *COMMAND],
            "lever pin_memory: '' is not valid; valid: script, off, on",
        ),
        (
            ["ab", "--lever", "batch_size=8,16", *COMMAND],
            "lever batch_size cannot be moved: a script sets its batch",
        ),
        (["tune", "encdec", "--levers", "piped"], "unknown lever 'piped'; valid: pipelined"),
        (["tune", "encdec", "--levers", "precision,"], "--levers precision, is not valid"),
        (
            ["tune", "encdec", "--levers", "seed", "--set", "seed=1"],
            "lever seed is both set and tuned",
        ),
        (["tune", "encdec", "--save", "known"], "there is a profile of this name"),
        (["tune", "--save", "fast", *COMMAND], "--save does not go with a command of yours"),
        (["tune", "--levers", "piped", *COMMAND], "lever 'piped' is not valid; valid: num_workers"),
        (["tune", "encdec", "--budget", "1"], "valid: a number from 5"),
        *(
            (["tune", "encdec", "--save", name], "letters, digits, - and _")
            for name in ("a b", "", "a.b")
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(words, why, refused):
    Path("train.py").write_text("print('started')")
    Path("gpudash.toml").write_text("[profiles.known]\nrate = 2\n")
    assert why in refused(*words)


# ── a command's processes ───────────────────────────────────────────────────────────────


@pytest.fixture
def job(tmp_path):
    """Return a command that only starts the training and waits for it."""
    (tmp_path / "job.sh").write_text(f"{TRAIN}\necho went on\n")
    return ["bash", str(tmp_path / "job.sh")]


@pytest.mark.parametrize(
    ("lever", "code", "pairs"),
    [("num_workers=2,8", 0, 3), ("compile=off,on", 2, None)],
    ids=["done", "refused"],
)
def test_a_wrappers_training_ends_too(job, folder, capfd, lever, code, pairs):
    assert main(["ab", "--pairs", "3", "--json", "--lever", lever, "--", *job]) == code
    assert not living(folder)
    output, errors = capfd.readouterr()
    assert "went on" not in errors
    assert (json.loads(output)["pairs"] if output else None) == pairs


@pytest.mark.parametrize("verb", ["why", "ab"], ids=["a training", "two commands"])
def test_nothing_outlives_a_killed_gpudash(job, folder, tmp_path, verb):
    measured = ["--a", shlex.join(job), "--b", "true"] if verb == "ab" else ["--", *job]
    with subprocess.Popen(
        [*GPUDASH, verb, *measured],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=tmp_path,
    ) as ours:
        until(lambda: any(TRAINING in words for words in living(folder).values()))
        ours.kill()
    until(lambda: not living(folder))


ALONE = f"""
import fcntl, os, sys
lock = os.open("lock", os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open("together", "w").close()
os.set_inheritable(lock, True)
os.execv(sys.executable, [sys.executable, *{shlex.split(TRAIN)[1:]!r}])
"""


def test_one_start_trains_after_the_other(tmp_path, folder):
    (tmp_path / "alone.py").write_text(ALONE)
    (tmp_path / "job.sh").write_text(f"{PYTHON} alone.py; echo went on")
    assert main([*AB, "--starts", "2", "--", "bash", "job.sh"]) == 0
    assert not (tmp_path / "together").exists()
    assert not living(folder)


# ── on a terminal ───────────────────────────────────────────────────────────────────────


BEHIND_A_SHELL = [*GPUDASH, "why", "--", "bash", "-c", f"{PYTHON} train.py; :"]
COUNTS = """
import signal, sys, time
heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
print("ready", flush=True)
while not heard:
    time.sleep(0.01)
time.sleep(0.2)
print("heard", len(heard), flush=True)
"""


def test_ctrl_c_reaches_the_command_once(tmp_path, folder):
    script(tmp_path, COUNTS)
    terminal = in_terminal(BEHIND_A_SHELL, "ready")
    terminal.sendintr()
    shows(terminal, "heard 1\r\n", "gpudash: no answer: interrupted")
    assert ended(terminal).exitstatus == 128 + signal.SIGINT
    assert not living(folder)


def test_the_command_may_read_the_terminal(tmp_path):
    code = "print(input('name? ')); print('password?'); print(open('/dev/tty').readline())"
    script(tmp_path, code)
    terminal = in_terminal(BEHIND_A_SHELL)
    for question, answer in (("name?", "Eve"), ("password?", "secret")):
        terminal.expect_exact(question)
        terminal.sendline(answer)
        terminal.expect_exact(f"{answer}\r\n{answer}\r\n")  # as typed, and printed
    ended(shows(terminal, "gpudash: no answer"))
