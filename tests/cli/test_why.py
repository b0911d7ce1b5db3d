"""`gpudash why` from outside: its answer as text and as a document, the proof, and its end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import worker_double

ROOT = Path(__file__).parents[2]
GPUDASH = [sys.executable, "-m", "gpudash"]
WAIT_S = 180
TRAIN = """
import hashlib, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
torch.manual_seed(0)

class Slow(Dataset):
    def __len__(self):
        return int(sys.argv[1])
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.randn(8, generator=torch.Generator().manual_seed(index))

if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, batch in enumerate(DataLoader(Slow(), batch_size=2, num_workers=1)):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            weights = torch.cat([one.detach().flatten() for one in model.parameters()])
            print("weights", step, hashlib.md5(weights.numpy().tobytes()).hexdigest(), flush=True)
"""
ENDLESS = "100000000"
# beside other tests the training may have too few cores
ANSWERS = ("train.py: input-bound; a step ", "train.py: limited by other jobs; a step ")


@pytest.fixture(autouse=True)
def _private(monkeypatch, short_path, tmp_path):
    monkeypatch.setenv("GPUDASH_RUN_DIR", str(short_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)


def why(*words, gpudash=GPUDASH):
    return subprocess.run(
        [*gpudash, "why", *words], capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def test_a_script_that_waits_for_data_says_so_with_its_lanes_and_parts():
    ended = why("--seconds", "3", "-q", "train.py", ENDLESS)
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if not line.startswith("weights ")]
    assert lines.pop(0).startswith(ANSWERS)
    assert any(line.startswith("  CPU: data wait ") for line in lines)
    (data,) = [line for line in lines if line.startswith("    data ")]
    assert data.endswith("–")  # nothing was slowed
    assert any("try num_workers 1 → " in line for line in lines)


def test_the_proof_slows_each_part_and_changes_no_number():
    ended = why("--seconds", "2", "--prove", "--", "train.py", ENDLESS)
    assert "slowing takes up to 60 s" in ended.stderr
    slowed = [line for line in ended.stdout.splitlines() if line.startswith("weights ")]
    samples = str(100 * len(slowed))
    alone = subprocess.run(
        [sys.executable, "train.py", samples], capture_output=True, text=True, check=True
    )
    assert slowed == alone.stdout.splitlines()
    assert len(slowed) > 4


def test_a_document_has_limit_parts_proposals_and_slopes():
    ended = why("--seconds", "2", "--prove", "--json", "-q", "--", "train.py", ENDLESS)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["limit"] in ("data", "cores")
    (data,) = [one for one in found["parts"] if one["part"] == "data"]
    assert data["high_ms"] < found["step_ms"]
    loader, device = found["slopes"]["loader"], found["slopes"]["device"]
    assert loader["low"] > 0.5
    assert device["why_not"] == "the training is on a CPU, where the host computes"
    assert found["proven"] is (found["limit"] == "data")
    assert {"lever", "value", "low_pct", "high_pct", "source"} <= found["proposals"][0].keys()


def test_the_line_of_own_code_is_named():
    busy = "def augment():\n    until = time.perf_counter() + 0.02\n"
    busy += "    while time.perf_counter() < until:\n        pass\n\nif __name__"
    step = "        model(batch)"
    text = TRAIN.replace("if __name__", busy, 1).replace(step, f"        augment()\n{step}")
    Path("own.py").write_text(text.replace("time.sleep(0.01)", "pass"))
    ended = why("--seconds", "10", "-q", "--", "own.py", ENDLESS)
    assert ended.returncode == 0, ended.stderr
    line = text[: text.index("while time")].count("\n") + 1
    named = (f"own.py:{at} augment" for at in (line, line + 1))  # the loop, or its body
    assert any(one in ended.stdout for one in named), ended.stdout


def test_a_workload_is_answered_and_ended():
    ended = why(
        "encdec", "--device", "cpu", "--seconds", "2", "-q", gpudash=worker_double.gpudash()
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("encdec: ")


def test_a_training_that_ends_during_its_proof_keeps_the_answer_and_says_so():
    ended = why("--prove", "--seconds", "2", "-q", "--", "train.py", "600")  # 6 s of training
    assert ended.returncode == 1, ended.stdout
    assert any(line.startswith(ANSWERS) for line in ended.stdout.splitlines())
    assert "gpudash: train.py has ended while slowing one part after another" in ended.stderr


def test_a_script_without_a_step_has_no_answer():
    Path("none.py").write_text("import sys; print(sys.argv)\n")
    ended = why("none.py", "--json", "of its own")
    assert ended.returncode == 1
    assert ended.stdout == "['none.py', '--json', 'of its own']\n"
    assert "gpudash: no answer: no training step was seen" in ended.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--seconds", "0"), "--seconds 0 is not valid; valid: a number from 1 to 3600"),
        (("--prove=yes",), "--prove"),
        (("nowhere",), "nowhere"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(words, said):
    ended = why(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert said in line
