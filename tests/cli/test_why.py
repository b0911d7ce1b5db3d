"""`gpudash why` from outside: its answer as text and as a document, the proof, and its end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, done

WHY = [sys.executable, "-m", "gpudash", "why", "--seconds", "2", "--prove"]
TRAIN = """
import hashlib, sys, time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
count, batch_s, own_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])

class Slow(Dataset):
    def __len__(self):
        return count
    def __getitem__(self, index):
        time.sleep(batch_s / 2)
        return torch.randn(8, generator=torch.Generator().manual_seed(index))

def augment():
    time.sleep(own_s)

if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, batch in enumerate(DataLoader(Slow(), batch_size=2, num_workers=1)):
        augment()
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            weights = torch.cat([one.detach().flatten() for one in model.parameters()])
            print("weights", step, hashlib.md5(weights.numpy().tobytes()).hexdigest(), flush=True)
        if Path("end").exists():
            break
"""
ENDLESS = ("--", "train.py", "100000000", "0.06")  # a delay of a tenth of its step exceeds noise


@pytest.fixture(autouse=True)
def _training(private, with_torch, monkeypatch):
    monkeypatch.setenv("VIRTUAL_ENV", str(with_torch))
    Path("train.py").write_text(TRAIN)


@pytest.mark.usefixtures("shared_memory")
def test_the_proof_slows_each_part_changes_no_number_and_is_a_document(with_torch):
    ended = done(*WHY, "--json", "-q", *ENDLESS, "0", timeout=2 * PATIENCE_S)
    assert ended.returncode == 0, ended.stderr
    assert "slowing takes up to 60 s" in ended.stderr
    slowed = [line for line in ended.stderr.splitlines() if line.startswith("weights ")]
    alone = done(with_torch / "bin" / "python", "train.py", str(20 * len(slowed)), "0", "0")
    assert slowed == alone.stdout.splitlines()
    assert len(slowed) > 4
    found = json.loads(ended.stdout)
    assert found["limit"] in ("data", "cores")  # beside other tests it may have too few
    assert found["proven"] is (found["limit"] == "data")
    data = next(one for one in found["parts"] if one["part"] == "data")
    assert data["high_ms"] < found["step_ms"]
    assert found["slopes"]["loader"]["low"] > 0  # how much depends on what else runs
    why_not = found["slopes"]["device"]["why_not"]
    assert why_not == "the training is on a CPU, where the host computes"
    assert {"lever", "value", "low_pct", "high_pct", "source"} <= found["proposals"][0].keys()


@pytest.mark.usefixtures("shared_memory")
def test_a_training_that_ends_during_its_proof_keeps_the_answer_and_says_so():
    why = subprocess.Popen(
        [*WHY, "-q", *ENDLESS, "0.045"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with why:
        assert "slowing takes up to 60 s\n" in iter(why.stderr.readline, "")
        Path("end").touch()
        printed, complaint = why.communicate(timeout=PATIENCE_S)
    assert why.returncode == 1
    ended = "gpudash: train.py has ended while slowing one part after another, round "
    assert ended in complaint
    lines = [line for line in printed.splitlines() if not line.startswith("weights ")]
    first = lines.pop(0).removeprefix("train.py: ")
    assert first.startswith(("bound by your own code; a step ", "limited by other jobs; a step "))
    assert any(line.startswith("  CPU: data wait ") for line in lines)
    (data,) = [line for line in lines if line.startswith("    data ")]
    assert data.endswith("–")  # nothing was slowed
    assert any("try num_workers 1 → " in line for line in lines)
    line = TRAIN[: TRAIN.index("time.sleep(own_s)")].count("\n") + 1
    assert any(one.endswith(f"train.py:{line} augment") for one in lines)


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
