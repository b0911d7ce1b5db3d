"""Each Python and each torch that can be had here, without gpudash in their environment.

Whole installs, gigabytes each and removed again: for `make test-long`. Which were tried, and which
could not be had, pytest's summary says.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.waiting import done_without_path

ROOT = Path(__file__).parents[2]
TORCHES = ("2.5.1", "2.7.1", "2.9.1", "2.11.0", "2.13.0", "2.15.0")
MINORS = range(10, 15)
PLACES = ROOT / "tests" / "script" / "private_places.py"
INJECT = ROOT / "gpudash" / "inject"
TRAINING = """
import sys
import time
import gpudash
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
loader = DataLoader(rows, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters())
path, epochs = sys.argv[1:]
for _ in range(int(epochs)):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        time.sleep(0.002)
assert "msgspec" not in sys.modules
torch.save(model.state_dict(), path)
"""
SAME = """
import sys
import torch
one, other = (torch.load(path, weights_only=True) for path in sys.argv[1:])
assert one.keys() == other.keys()
assert all(torch.equal(one[name], other[name]) for name in one)
"""
SHARED = """
import time
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(300):
    optimizer.zero_grad()
    model(torch.randn(4, 16)).mean().backward()
    optimizer.step()
    time.sleep(0.002)
del model  # as the group's last owner it may wait for ever
distributed.destroy_process_group()
"""
EPOCHS = 100
STEPS = 4 * EPOCHS

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def pythons():
    """Whatever Pythons this machine has, of each version at most one."""
    found = {}
    folders = [Path(one) for one in os.environ["PATH"].split(os.pathsep)]
    for folder in (*folders, *Path.home().glob(".pyenv/versions/*/bin")):
        for minor in MINORS:
            python = folder / f"python3.{minor}"
            if python.exists() and ".pyenv/shims" not in str(python):
                found.setdefault(minor, python)
    return [(f"3.{minor}", found.get(minor)) for minor in MINORS]


def run(*command, cwd):
    return done_without_path(*command, cwd=cwd, timeout=1800)


def passed(*command, cwd):
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(params=pythons(), ids=lambda one: f"python{one[0]}")
def python(request):
    version, path = request.param
    if path is None:
        pytest.skip(f"there is no Python {version} here")
    return path


@pytest.fixture(params=TORCHES, ids=lambda one: f"torch{one}")
def own(request, python, tmp_path):
    """The Python of an environment with this torch and nothing of ours, in a folder of its own."""
    place = tmp_path / "env"
    passed(python, "-m", "venv", place, cwd=tmp_path)
    own = place / "bin" / "python"
    # setuptools: an old torch imports it from Python 3.12 on, and does not ask for it
    wanted = [f"torch=={request.param}", "numpy", "setuptools"]
    installed = run(
        *(own, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
        *("--no-cache-dir", "--only-binary=:all:", *wanted),
        cwd=tmp_path,
    )
    if installed.returncode != 0:
        if "No matching distribution found" not in installed.stderr:
            pytest.fail(installed.stderr)
        pytest.skip(f"torch {request.param} cannot be had for {python.name}")
    yield own
    shutil.rmtree(place)


def gpudash(*words, cwd):
    """Run gpudash, from the tests' environment; the script is not to find it by the same path."""
    code = (
        f"import sys; sys.path[0] = {str(ROOT)!r}; from gpudash.cli.main import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    return run(sys.executable, "-c", code, *words, cwd=cwd)


def test_it_is_measured_and_changed_and_trains_the_same(own, tmp_path):
    passed(own, PLACES, INJECT, cwd=tmp_path)

    (tmp_path / "same.py").write_text(SAME)
    path = tmp_path / "train.py"
    path.write_text(TRAINING.replace("import gpudash\n", ""))
    passed(own, path, "plain.pt", EPOCHS, cwd=tmp_path)

    path.write_text(TRAINING)  # where gpudash is not installed, and can be imported all the same
    recorded = gpudash(
        "run", "--record", "r.csv", "--every-step", "--", own, path, "ours.pt", EPOCHS, cwd=tmp_path
    )
    assert recorded.returncode == 0, recorded.stderr
    assert f"gpudash: {STEPS} steps" in recorded.stderr
    assert {"forward_ms", "backward_ms", "optimizer_ms"} <= phases(tmp_path / "r.jsonl")
    passed(own, "same.py", "plain.pt", "ours.pt", cwd=tmp_path)

    for lever in ("num_workers=0,1", "precision=fp32,bf16"):
        compared = gpudash(
            *("ab", "--lever", lever, "--pairs", "2", "--json", "--", own, path, "ab.pt", 10**6),
            cwd=tmp_path,
        )
        assert compared.returncode == 0, compared.stderr
        assert json.loads(compared.stdout)["verdict"]

    (tmp_path / "shared.py").write_text(SHARED)
    launched = (own, "-m", "torch.distributed.run", "--nproc-per-node", "2", "shared.py")
    several = gpudash("run", "--record", "s.csv", "--every-step", "--", *launched, cwd=tmp_path)
    assert several.returncode == 0, several.stderr
    assert "gpudash: 300 steps" in several.stderr
    assert "communication_ms" in phases(tmp_path / "s.jsonl")


def phases(log):
    """Return the names of all values that steps have in a recording's log."""
    return set(re.findall(r'"(\w+_ms)":', log.read_text(encoding="utf-8")))
