"""`gpudash why` from outside: its answer as text and as a document, the proof, and its end."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudash.cli.main import parse
from gpudash.protocol.answer import Answer, Gain, Try
from gpudash.protocol.session import Slope, SlowingShown
from gpudash.snapshot import Snapshot
from tests.scripted_session import ScriptedSession, called
from tests.waiting import PATIENCE_S, done

WHY = [sys.executable, "-m", "gpudash", "why", "--seconds", "2", "--prove"]
TRAIN = """
import hashlib, sys, time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
count, batch_s = int(sys.argv[1]), float(sys.argv[2])

def note_delays(_worker, sleep=time.sleep):
    def noted(seconds):
        if seconds != batch_s / 2:
            Path("delayed").touch()
        sleep(seconds)
    time.sleep = noted

class Slow(Dataset):
    def __len__(self):
        return count
    def __getitem__(self, index):
        time.sleep(batch_s / 2)
        return torch.randn(8, generator=torch.Generator().manual_seed(index))

def augment():
    time.sleep(0.75 * batch_s)

if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(Slow(), batch_size=2, num_workers=1, worker_init_fn=note_delays)
    for step, batch in enumerate(loader):
        augment()
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            weights = torch.cat([one.detach().flatten() for one in model.parameters()])
            print("weights", step, hashlib.md5(weights.numpy().tobytes()).hexdigest(), flush=True)
"""
ENDLESS = ("--", "train.py", "100000000", "0.06")  # a delay of a tenth of its step exceeds noise


@pytest.mark.usefixtures("private", "shared_memory")
def test_the_proof_slows_each_part_and_changes_no_number(with_torch, monkeypatch):
    """What it proves, and for how long, depends on what else the machine does: see below."""
    monkeypatch.setenv("VIRTUAL_ENV", str(with_torch))
    Path("train.py").write_text(TRAIN)
    ended = done(*WHY, "-q", *ENDLESS, timeout=2 * PATIENCE_S)
    assert (ended.returncode, ended.stderr[:8]) == (0, "slowing "), ended.stderr
    assert Path("delayed").exists()
    lines = ended.stdout.splitlines()
    slowed = [line for line in lines if line.startswith("weights ")]
    alone = with_torch / "bin" / "python", "train.py", str(20 * len(slowed)), "0"
    assert slowed == done(*alone).stdout.splitlines()
    assert len(slowed) > 4
    assert lines[len(slowed)].startswith("train.py: ")
    (data,) = [line for line in lines if line.startswith("    data ")]
    assert re.search(r"-?\d\.\d\d ± \d\.\d\d$", data)
    assert "    device: the training is on a CPU, where the host computes" in lines
    line = TRAIN[: TRAIN.index("time.sleep(0.75")].count("\n") + 1
    assert f"/train.py:{line} augment\n" in ended.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seconds", "0"), "--seconds 0 is not valid; valid: a number from 1 to 3600"),
        (("--prove=yes",), "--prove"),
        (("nowhere",), "nowhere"),
    ],
)
def test_a_bad_value_is_refused(words, said, refused):
    assert said in refused("why", *words)


# ── within its budget ───────────────────────────────────────────────────────────────────


class Told(ScriptedSession):
    """A training that shows these snapshots, until it is stopped."""

    def __init__(self, *snapshots):
        super().__init__()
        self.left, self.profiled, self.slowed_ms = list(snapshots), [], []

    def wait(self, timeout_s):
        if not self.left:
            return True
        self.listener.on_snapshot(self.left.pop(0))
        return False

    def profile(self, steps, path):
        self.profiled.append(steps)
        return 1

    def slow(self, step_ms):
        self.slowed_ms.append(step_ms)
        return 1

    def stop(self):
        self.left = []


ANSWER = Answer(
    limit="data",
    title="input-bound",
    owner="data",
    evidence=("the GPU waits for data 30.0 of 50.0 ms", "the training uses 3 of 16 cores"),
    step_ms=50.0,
    tries=(
        Try("num_workers", "8", "it waits", "2", Gain(80.0, 150.0, "a batch takes 4 steps")),
        Try("compile", "on", "fewer kernels", "off"),
        Try("batch_size", "16", "more samples", "8"),
    ),
)
FIRST = Snapshot(
    state="training", workload="encdec", total_steps=1, elapsed_s=5.0, can=("profile",)
)
FOUND = replace(FIRST, total_steps=500, elapsed_s=20.0, answer=ANSWER)
REFUSED = replace(FOUND, last_command=1, profile_refusal="a CUDA graph is being captured")
PROVING = ("--prove", "--seconds", "1", "--no-profile", "-q")
OVER_S = 35.1
"""When the 30 s after the first step are over."""


@pytest.mark.parametrize(
    ("words", "last", "said"),
    [
        ([], replace(FIRST, elapsed_s=OVER_S), "no step was finished in 30 s"),
        (
            ["--budget", "60"],
            replace(FIRST, total_steps=2, elapsed_s=65.1),
            "only 1 step was finished in 60 s",
        ),
    ],
    ids=["no step", "too few"],
)
def test_steps_of_40_s_leave_no_answer_in_the_budget(words, last, said, capsys):
    told = Told(FIRST, replace(last, elapsed_s=last.elapsed_s - 1), last, FOUND)
    assert called("why", "-q", *words, "encdec", trains=[told]) == 1
    assert capsys.readouterr() == ("", f"gpudash: no answer: {said}\n")


@pytest.mark.parametrize(("step_ms", "steps"), [(0.2, 10), (900.0, 7)])
def test_a_profile_has_half_of_what_is_left_and_at_the_end_it_is_said_what_is_known(
    step_ms, steps, capsys
):
    told = Told(FIRST, replace(FOUND, step_ms_p50=step_ms), replace(FOUND, elapsed_s=OVER_S), FOUND)
    assert called("why", "-q", "encdec", trains=[told]) == 0
    assert told.profiled == [steps]
    said, complaint = capsys.readouterr()
    assert complaint == f"30 s were over while profiling {steps} steps\n"
    assert said.startswith("encdec: input-bound; ")
    assert "  no profile: there was no time to trace steps\n" in said


@pytest.mark.parametrize(
    ("words", "snapshots", "why_not", "code"),
    [
        ([], [FOUND, REFUSED], REFUSED.profile_refusal, 0),
        (["--with-profile"], [FOUND, REFUSED], REFUSED.profile_refusal, 1),
        ([], [replace(FOUND, step_ms_p50=4000.0)], "there was no time to trace steps", 0),
        (["--no-profile"], [FOUND], "", 0),
    ],
    ids=["refused", "refused, and asked for", "long steps", "not wanted"],
)
def test_without_a_profile_the_answer_says_why(words, snapshots, why_not, code, capsys):
    told = Told(FIRST, *snapshots)
    assert called("why", "--json", "-q", *words, "encdec", trains=[told]) == code
    said, complaint = capsys.readouterr()
    found = json.loads(said)
    assert (found["limit"], found["why_no_profile"]) == ("data", why_not)
    assert complaint == f"gpudash: {why_not}\n" * code


def test_its_document_is_short_and_names_the_command_that_tries_the_first_proposal(capsys):
    words = ["--device", "cpu", "--set", "num_workers=2", "--seed", "7", "encdec"]
    assert called("why", "--json", *words, "--no-profile", trains=[Told(FIRST, FOUND)]) == 0
    said = capsys.readouterr().out
    found = json.loads(said)
    numerics = {one["lever"]: one["numerics"] for one in found["proposals"]}
    assert numerics == {"num_workers": "same", "compile": "rounding", "batch_size": "training"}
    following = "gpudash ab --lever num_workers=2,8 encdec --device cpu --set seed=7"
    assert (found["owner"], found["line"], found["next"]) == ("data", "", following)
    _, *ab = shlex.split(following)
    parse(ab)
    assert len(said) < 2000


# ── the proof ───────────────────────────────────────────────────────────────────────────


def slowing(**shown):
    return replace(FOUND, last_command=1, slowing=SlowingShown(**{"delay_ms": 5.0} | shown))


SLOPES = (
    Slope(part="loader", slope=1.0, low=0.8, high=1.2, modelled=(1.0, 1.0)),
    Slope(part="device", why_not="on a CPU"),
)
SLOPES_TOLD = {
    "loader": {
        "part": "loader",
        "slope": 1.0,
        "low": 0.8,
        "high": 1.2,
        "modelled": [1.0, 1.0],
        "why_not": "",
    },
    "device": dict.fromkeys(("slope", "low", "high", "modelled"))
    | {"part": "device", "why_not": "on a CPU"},
}


@pytest.mark.parametrize("is_proven", [True, False])
def test_the_proof_goes_on_until_the_answer_rests_on_it(is_proven, capsys):
    over = slowing(slopes=SLOPES, is_over=True)
    proven = replace(over, answer=replace(ANSWER, slopes=SLOPES, is_proven=is_proven))
    told = Told(FIRST, FOUND, slowing(slopes=()), over, replace(over, answer=None), proven)
    assert called("why", *PROVING, "--json", "encdec", trains=[told]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (told.slowed_ms, found["proven"], found["slopes"]) == ([50.0], is_proven, SLOPES_TOLD)


@pytest.mark.parametrize(
    ("expected_s", "said"),
    [
        (20.0, "slowing takes up to 60 s"),
        (90.0, "slowing ends after 60 s, and needs about 90 s: its slopes may stay unknown"),
    ],
)
def test_a_training_that_ends_during_its_proof_keeps_the_answer_and_says_so(
    expected_s, said, capsys
):
    told = Told(FIRST, FOUND, slowing(slopes=(), rounds=2, expected_s=expected_s))
    assert called("why", *PROVING, "encdec", trains=[told]) == 1
    printed, complaint = capsys.readouterr()
    assert complaint == (
        f"{said}\ngpudash: the training ended while slowing one part after another, round 3\n"
    )
    assert printed.startswith("encdec: input-bound; a step 50.0 ms\n")
    assert "  try num_workers 2 → 8: +80 to +150 %; it waits\n" in printed
