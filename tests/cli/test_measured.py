"""What a verb starts to measure, from outside: all of it ends with that, and with gpudash."""

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pexpect
import pytest

from tests.waiting import PATIENCE_S, done, until

ROOT = Path(__file__).parents[2]
TRAINING = str(ROOT / "tests" / "run" / "scripted_training.py")
TRAIN = shlex.join([sys.executable, TRAINING, "--step-s", "0.001", "--until", "never"])
PYTHON = shlex.quote(sys.executable)
GPUDASH = [sys.executable, "-m", "gpudash"]
AB = ["ab", "--lever", "num_workers=2,8", "--pairs", "3"]
VERBS = {
    "ab": AB,
    "ab --starts": [*AB, "--starts", "3"],
    "why": ["why"],
    "tune": ["tune", "--fresh"],
    "profile": ["profile"],
}


@pytest.fixture(autouse=True)
def folder(monkeypatch, short_path):
    """Return the folder of the runs: each process that belongs to one has it in its environment."""
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
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


@pytest.fixture
def job(tmp_path):
    """Return a command that only starts the training and waits for it."""
    (tmp_path / "job.sh").write_text(f"{TRAIN}\necho went on\n")
    return ["bash", str(tmp_path / "job.sh")]


@pytest.mark.parametrize("lever", ["num_workers=2,8", "compile=off,on"], ids=["done", "refused"])
def test_a_wrappers_training_ends_too(job, folder, tmp_path, lever):
    ours = done(
        *GPUDASH, "ab", "--pairs", "3", "--json", "--lever", lever, "--", *job, cwd=tmp_path
    )
    assert not living(folder)
    assert "went on" not in ours.stderr
    if lever == "num_workers=2,8":
        assert json.loads(ours.stdout)["pairs"] == 3
        assert ours.returncode == 0
    else:
        assert (ours.stdout, ours.returncode) == ("", 2)


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_outlives_a_killed_gpudash(job, folder, tmp_path, verb):
    with subprocess.Popen(
        [*GPUDASH, *VERBS[verb], "--", *job],
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
    ours = done(*GPUDASH, *AB, "--starts", "2", "--", "bash", "job.sh", cwd=tmp_path)
    assert ours.returncode == 0, ours.stderr
    assert not (tmp_path / "together").exists()
    assert not living(folder)


# ── on a terminal ───────────────────────────────────────────────────────────────────────


def on_terminal(*words, cwd):
    return pexpect.spawn(
        GPUDASH[0], [*GPUDASH[1:], *words], encoding="utf-8", timeout=PATIENCE_S, cwd=str(cwd)
    )


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
    (tmp_path / "train.py").write_text(COUNTS)
    terminal = on_terminal("why", "--", "bash", "-c", f"{PYTHON} train.py; :", cwd=tmp_path)
    terminal.expect("ready")
    terminal.sendintr()
    terminal.expect("heard 1\r\n")
    terminal.expect("gpudash: no answer: interrupted")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 128 + signal.SIGINT
    assert not living(folder)


def test_the_command_may_read_the_terminal(tmp_path):
    code = "print(input('name? ')); print('password?'); print(open('/dev/tty').readline())"
    (tmp_path / "train.py").write_text(code)
    terminal = on_terminal("why", "--", "bash", "-c", f"{PYTHON} train.py; :", cwd=tmp_path)
    for question, answer in (("name?", "Eve"), ("password?", "secret")):
        terminal.expect_exact(question)
        terminal.sendline(answer)
        terminal.expect_exact(f"{answer}\r\n{answer}\r\n")  # as typed, and printed
    terminal.expect_exact("gpudash: no answer")
    terminal.expect(pexpect.EOF)
