"""`gpudash profile` from outside, and its end."""

import json
import os
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from gpudash.cli.headless import News
from gpudash.cli.main import main
from gpudash.cli.measure import PATIENCE_S, Ended
from gpudash.cli.profile import ProfileTrial
from gpudash.errors import Exit
from gpudash.protocol.inspections import Profiled
from gpudash.snapshot import Result, Snapshot
from tests import waiting
from tests.scripted_worker import TRACE

pytestmark = pytest.mark.usefixtures("private")

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
torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.005)  # leaves the cores to others while it is waited for
"""


def done(*words):
    return waiting.done(sys.executable, "-m", "gpudash", "profile", *words)


# ── from outside ────────────────────────────────────────────────────────────────────────


def test_a_workload_is_profiled_and_ended(called_with_double, capsys):
    """For a real worker's trace see tests/worker/test_loop_profile.py."""
    assert main(["profile", "encdec", "--device", "cpu", "-q"]) == 0
    printed, said = capsys.readouterr()
    assert printed.startswith("1 step traced on NVIDIA H200")
    assert said == ""
    (trace,) = Path().iterdir()
    assert trace.name == "encdec.trace.json"
    assert trace.read_bytes() == TRACE.read_bytes()


def test_a_script_is_profiled_and_ended(with_torch, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(with_torch))
    Path("train.py").write_text(TRAIN)
    ended = done("--steps", "4", "--trace", "t.json", "--json", "-q", "--", "train.py")
    assert (ended.returncode, ended.stderr) == (0, "")  # no traceback of its interrupt either
    report = json.loads(ended.stdout)
    assert (report["workload"], report["trace"]) == ("train.py", "t.json")
    assert report["summary"]["steps"] == report["summary"]["profiled"]["steps"] == 4
    assert report["summary"]["profiled"]["flops"]["step_gflop"] > 0
    events = json.loads(Path("t.json").read_bytes())["traceEvents"]
    assert sum(one.get("name", "").startswith("ProfilerStep#") for one in events) == 4


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
def test_errors_are_one_line_before_anything_starts(refused, words, why):
    Path("old.json").write_text("no trace")
    assert why in refused("profile", *words)


def test_a_trace_is_read_and_laid_beside_another(printed):
    path = str(shutil.copy(TRACE, os.fsdecode(b"b\xe4r.json")))
    named = json.loads(printed("profile", "--read", path, "--json"))["trace"]
    assert named.endswith("b\ufffdr.json")
    alone = printed("profile", "--read", path)
    assert alone.startswith("1 step traced")
    assert printed("profile", "--read", path, "--against", path).startswith(alone.rstrip("\n"))


# ── how it comes to its end ─────────────────────────────────────────────────────────────


@pytest.fixture
def trial():
    session = Mock(profile=Mock(return_value=1))
    return ProfileTrial(3, Path("trace.json")).begin(session, News())


def over(trial, snapshot):
    trial.news.on_snapshot(snapshot)
    return trial.is_over()


def test_it_requests_the_profile_once_the_training_is_warm(trial):
    assert not over(trial, Snapshot())
    assert not over(trial, replace(WARM, results=()))
    trial.session.profile.assert_not_called()
    assert not over(trial, WARM)
    assert not over(trial, WARM)
    trial.session.profile.assert_called_once_with(3, Path("trace.json"))
    silent = replace(WARM, profiling=True, quiet_s=12.0)
    assert trial.line(silent) == "encdec: profiling 3 steps, no step for 12 s"


ANSWERED = replace(WARM, last_command=1)


def test_it_is_over_with_the_answer(trial):
    over(trial, WARM)
    assert not over(trial, replace(ANSWERED, profiling=True))
    assert over(trial, replace(ANSWERED, profile=FOUND))
    assert trial.conclude(Ended()) == Exit.DONE


ANOTHER = "another profiler is active"
STUCK = {"quiet_s": PATIENCE_S + 1}


@pytest.mark.parametrize(
    ("snapshots", "why"),
    [
        ([WARM, replace(ANSWERED, profile_refusal=ANOTHER)], ANOTHER),
        ([replace(WARM, **STUCK)], "no step has ended for 60 s; gpudash doctor may tell why"),
        (
            [WARM, replace(WARM, profiling=True, **STUCK), replace(ANSWERED, profile=FOUND)],
            "no step has ended for 60 s; gpudash doctor may tell why",  # a late one is none
        ),
    ],
    ids=["refused", "stuck", "stuck in it"],
)
def test_without_a_profile_it_says_why(trial, capsys, snapshots, why):
    *_, last = [over(trial, one) for one in snapshots]
    assert last
    assert trial.conclude(Ended()) == Exit.REFUSED
    assert capsys.readouterr().err == f"gpudash: no profile: {why}\n"


def test_interrupted_it_says_so(trial, capsys):
    over(trial, WARM)
    assert trial.conclude(Ended(interrupted=True)) == Exit.INTERRUPTED
    assert capsys.readouterr().err == "gpudash: no profile: interrupted\n"
