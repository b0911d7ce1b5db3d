"""`gpudash profile` from outside, and its end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudash.cli.headless import News
from gpudash.cli.main import main
from gpudash.cli.profile_trial import PATIENCE_S, ProfileTrial
from gpudash.errors import Exit
from gpudash.protocol.inspections import Profiled
from gpudash.snapshot import Result, Snapshot
from tests import worker_double
from tests.scripted_worker import TRACE

ROOT = Path(__file__).parents[2]
GPUDASH = [sys.executable, "-m", "gpudash"]
WAIT_S = 120
WARM = Snapshot(
    state="training",
    workload="encdec",
    can=("profile",),
    results=(Result(number=1, configuration="", steps=3),),
)
FOUND = Profiled(at_s=1.0, path="trace.json", first_step=1, steps=3, steps_ms=1.0, took_ms=1.0)
TRAIN = """
import time
import torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.005)  # leaves the cores to others while it is waited for
"""


def traced(path: Path) -> Path:
    """Write a trace of two steps."""
    import torch

    from gpudash.instrument.profiler import Profiler
    from tests.workloads.trainings import one_thread

    profiler = Profiler(torch.device("cpu"), 2, path)
    profiler.begin(1)
    with one_thread():
        while True:
            torch.ones(8, 8) @ torch.ones(8, 8)
            if profiler.step():
                break
    profiler.end()
    return path


@pytest.fixture(autouse=True)
def _private(monkeypatch, short_path, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def done(*words, gpudash=GPUDASH):
    return subprocess.run(
        [*gpudash, "profile", *words], capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def steps_in(path: Path) -> int:
    events = json.loads(path.read_bytes())["traceEvents"]
    return sum(one.get("name", "").startswith("ProfilerStep#") for one in events)


# ── from outside ────────────────────────────────────────────────────────────────────────


def test_a_workload_is_profiled_and_ended(tmp_path):
    """For a real worker's trace see tests/worker/test_loop_profile.py."""
    ended = done("encdec", "--device", "cpu", "-q", gpudash=worker_double.gpudash())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("1 step traced on NVIDIA H200")
    assert (tmp_path / "encdec.trace.json").read_bytes() == TRACE.read_bytes()
    assert [one.name for one in tmp_path.iterdir()] == ["encdec.trace.json"]


def test_a_script_is_profiled_and_ended(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    ended = done("--steps", "4", "--trace", "t.json", "--json", "-q", "--", "train.py")
    assert (ended.returncode, ended.stderr) == (0, "")  # no traceback of its interrupt either
    report = json.loads(ended.stdout)
    assert (report["workload"], report["trace"]) == ("train.py", "t.json")
    assert report["summary"]["steps"] == report["summary"]["profiled"]["steps"] == 4
    assert report["summary"]["profiled"]["flops"]["step_gflop"] > 0
    assert steps_in(tmp_path / "t.json") == 4


def test_a_script_that_ends_first_leaves_no_profile(tmp_path):
    (tmp_path / "train.py").write_text("print('hello')")
    ended = done("-q", "--", "train.py")
    assert (ended.returncode, ended.stdout) == (1, "hello\n")
    said = "gpudash: no profile: no training step was seen: torch was never imported"
    assert ended.stderr.startswith(said)
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "train.trace.json").exists()


def test_a_script_that_fails_before_its_profile_has_its_own_exit_code(tmp_path):
    (tmp_path / "train.py").write_text("raise SystemExit(3)")
    ended = done("-q", "--", "train.py")
    assert ended.returncode == 3
    assert ended.stderr == "gpudash: no profile: train.py exited with 3\n"


# ── what is asked ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--trace", "old.json"], "old.json exists; --force overwrites it"),
        (["--trace", "t.json.gz"], "valid: a name without .gz"),
        (["--trace", "b\udce4r.json"], "its name is no UTF-8"),
        (["--trace", "none/t.json"], "the folder none does not exist"),
        (["--trace", "/proc/t.json"], "the folder /proc cannot be written to"),
        (["--trace", "/dev/null", "--force"], "--trace /dev/null is not valid; valid: a file"),
        (["--steps", "0"], "--steps 0 is not valid; valid: a whole number from 1 to 1000"),
        (["--seed", "3", "--", "train.py"], "--seed does not go with a command of yours"),
        (["--read", "old.json", "--", "train.py"], "--read trains nothing"),
        (["--read", "none.json"], "none.json"),
        (["--against", "old.json"], "old.json"),
    ],
)
def test_errors_are_one_line_before_anything_starts(tmp_path, capsys, words, why):
    (tmp_path / "old.json").write_text("no trace")
    assert main(["profile", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_a_trace_is_read_and_laid_beside_another(tmp_path, capsys):
    path = str(traced(tmp_path / "trace.json").rename(tmp_path / os.fsdecode(b"b\xe4r.json")))
    assert main(["profile", "--read", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trace"].endswith("b\ufffdr.json")
    assert main(["profile", "--read", path]) == 0
    alone = capsys.readouterr().out
    assert alone.startswith("2 steps traced")
    assert main(["profile", "--read", path, "--against", path]) == 0
    assert capsys.readouterr().out.startswith(alone.rstrip("\n"))


# ── how it comes to its end ─────────────────────────────────────────────────────────────


class FakeSession:
    def __init__(self):
        self.asked = []

    def profile(self, steps, path):
        self.asked.append((steps, path))
        return 1


@pytest.fixture
def trial():
    return ProfileTrial(FakeSession(), News(), 3, Path("trace.json"))


def over(trial, snapshot):
    trial._news.on_snapshot(snapshot)
    return trial.is_over()


def test_it_requests_the_profile_once_the_training_is_warm(trial):
    assert not over(trial, Snapshot())
    assert not over(trial, replace(WARM, results=()))
    assert not over(trial, WARM)
    assert not over(trial, WARM)
    assert trial._session.asked == [(3, Path("trace.json"))]


def test_it_is_over_with_the_answer(trial):
    over(trial, WARM)
    assert not over(trial, replace(WARM, last_command=1, profiling=True))
    assert over(trial, replace(WARM, last_command=1, profile=FOUND))
    assert trial.conclude("", interrupted=False) == Exit.DONE


def test_a_refusal_is_reported(trial, capsys):
    over(trial, WARM)
    assert over(trial, replace(WARM, last_command=1, profile_refusal="another profiler is active"))
    assert trial.conclude("", interrupted=False) == Exit.REFUSED
    assert capsys.readouterr().err == "gpudash: no profile: another profiler is active\n"


def test_a_training_that_cannot_be_profiled_is_not_waited_for(trial, capsys):
    assert over(trial, replace(WARM, can=("record",)))
    assert trial._session.asked == []
    assert trial.conclude("", interrupted=False) == Exit.REFUSED
    assert capsys.readouterr().err == "gpudash: no profile: this training cannot be profiled\n"


def test_a_step_that_never_ends_is_not_waited_for(trial, capsys):
    assert over(trial, replace(WARM, quiet_s=PATIENCE_S + 1))
    assert trial.conclude("", interrupted=False) == Exit.REFUSED
    assert "no step has ended for 60 s" in capsys.readouterr().err


def test_an_interrupted_stuck_step_leaves_no_profile(trial):
    over(trial, WARM)
    assert over(trial, replace(WARM, profiling=True, quiet_s=PATIENCE_S + 1))
    assert over(trial, replace(WARM, last_command=1, profile=FOUND))
    assert trial.conclude("", interrupted=False) == Exit.REFUSED


def test_a_step_that_never_ends_in_the_profile_is_reported_too(trial):
    over(trial, WARM)
    snapshot = replace(WARM, profiling=True, quiet_s=12.0)
    assert trial.line(snapshot) == "encdec: profiling 3 steps, no step for 12 s"


def test_interrupted_it_says_so(trial, capsys):
    over(trial, WARM)
    assert trial.conclude("", interrupted=True) == Exit.INTERRUPTED
    assert capsys.readouterr().err == "gpudash: no profile: interrupted\n"
