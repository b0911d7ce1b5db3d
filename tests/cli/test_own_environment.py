"""`gpudash run` over a script in an environment of its own: torch is there, and gpudash is not."""

import os
import sys
import venv
import zipapp
from pathlib import Path

import pytest

from tests import warm
from tests.cli.conftest import GPUDASH
from tests.waiting import done_without_path

ROOT = Path(__file__).parents[2]
TORCHS = [
    *(
        "torch",
        "torchgen",
        "functorch",
        "numpy",
        "numpy.libs",
        "nvidia",
        "triton",
        "sympy",
        "mpmath",
    ),
    *("networkx", "filelock", "jinja2", "markupsafe", "fsspec", "typing_extensions.py"),
]
"""What torch imports, of the tests' environment."""
PROGRAM = [sys.executable, "-P", "-m", "gpudash"]  # -P: as it is installed, without the folder
TRAINING = """
import sys
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = TensorDataset(torch.randn(80, 4), torch.randn(80, 1))
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))

def loader(workers=0, how=None):
    return DataLoader(rows, batch_size=4, num_workers=workers, multiprocessing_context=how)

def learn(x, y):
    nn.functional.mse_loss(model(x), y).backward()
    time.sleep(0.005)  # long enough to be measured
"""
NAMES = ("gpudash", "msgspec", "protocol", "hooks", "errors", "script")
WHOLE = f"""
if __name__ == "__main__":
    {TRAINING.replace(chr(10), chr(10) + "    ")}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    begun = [("fork", 1), ("spawn", 1)] if sys.argv[1:] else [(None, 0)] * 2
    for how, workers in begun:
        for x, y in loader(workers, how):
            optimizer.zero_grad()
            learn(x, y)
            optimizer.step()
    print(*(one.double().sum().item() for one in model.parameters()))
    print([one for one in {NAMES} if one in sys.modules])
    import gpudash, protocol, hooks, errors, script
    print(gpudash.step, protocol.step, hooks.step, errors.step, script.step)
"""
DECLARED = f"""
import gpudash
{TRAINING}
for batch, other in zip(loader(), loader()):
    with gpudash.step(samples=8):
        learn(*batch)
        learn(*other)
print(gpudash.__name__)
"""
BY_CALLBACK = f"""
from gpudash.integrations.huggingface import GpudashCallback
{DECLARED}
callback = GpudashCallback()
for batch, other in zip(loader(), loader()):
    callback.on_step_begin()
    learn(*batch)
    learn(*other)
    callback.on_step_end()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of an environment with torch alone."""
    place = tmp_path_factory.mktemp("own")
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    for entry in map(Path, sys.path):
        for name in TORCHS if entry.name == "site-packages" else ():
            if (entry / name).exists() and not (packages / name).exists():
                (packages / name).symlink_to(entry / name)
    return place / "bin" / "python"


def watched(folder, *words, **environment):
    return done_without_path(*PROGRAM, "run", "--watch", "--", *words, cwd=folder, **environment)


def both(python, folder, *words, more=(), **environment):
    """Run a script by itself, and with gpudash and `more` words; return gpudash's last line."""
    alone = done_without_path(python, *words, cwd=folder, **environment)
    ours = watched(folder, python, *words, *more, **environment)
    *errors, last = ours.stderr.splitlines()
    slow = "gpudash: no step for "  # where a loader's workers begin on a machine that is busy
    assert [line for line in errors if not line.startswith(slow)] == alone.stderr.splitlines()
    assert (ours.stdout, ours.returncode) == (alone.stdout, alone.returncode)
    return last


def written(folder, code, name="train.py"):
    path = folder / name
    path.write_text(code)
    return path


def test_steps_may_be_declared_and_names_that_are_no_text_and_what_pythonpath_has_hide_none(
    tmp_path, python
):
    """Also by a framework's callback. What PYTHONPATH has is for the script, a zipped program."""
    folder, src, app = tmp_path / "b\udce4r", tmp_path / "src", tmp_path / "app"
    for one in (folder, src, app):
        one.mkdir()
    for name in ("msgspec", "workloads", "platformdirs"):
        written(src, "raise RuntimeError('half an upgrade')", f"{name}.py")
        written(folder, "raise RuntimeError('in the working folder')", f"{name}.py")
    written(src, "step = 'my own'", "helper.py")
    written(app, f"import helper; print(helper.step)\n{BY_CALLBACK}", "__main__.py")
    written(app, "class TrainerCallback: pass", "transformers.py")
    zipapp.create_archive(app, folder / "tr\udcff.py")
    run = (*GPUDASH, "run", "--record", "r\udcff.csv", "--", python, "tr\udcff.py", "\udcff")
    one = done_without_path(*run, cwd=folder, PYTHONPATH=str(src), **{"B\udce4R": "\udcff"})
    assert one.stdout == "my own\ngpudash\n", one.stderr
    assert one.stderr.startswith("gpudash: 40 steps")
    assert ",tr\ufffd.py," in (folder / "r\udcff.csv").read_text()
    beside = f"{src}{os.pathsep}{ROOT}"
    assert done_without_path(*GPUDASH, "list", cwd=folder, PYTHONPATH=beside).returncode == 0


@pytest.mark.usefixtures("shared_memory")
def test_it_is_measured_and_computes_the_same_whatever_its_modules_and_loaders_are(
    tmp_path, with_torch
):
    """Workers begin by fork and by spawn; its msgspec is broken; its modules are named as ours."""
    for name in NAMES:
        written(tmp_path, f"step = 'my own {name}'", f"{name}.py")
    written(tmp_path, "raise RuntimeError('half an upgrade')", "msgspec.py")
    python = with_torch / "bin" / "python"
    last = both(python, tmp_path, written(tmp_path, WHOLE), more=["loaders"])
    assert last.startswith("gpudash: 40 steps")


def test_steps_declared_through_an_installed_gpudash_reach_the_hooks(tmp_path, with_torch):
    path = written(tmp_path, DECLARED)
    one = watched(tmp_path, with_torch / "bin" / "python", path, PYTHONPATH=str(ROOT))
    assert one.stderr.splitlines()[-1].startswith("gpudash: 20 steps")
    alone = warm.python("-c", DECLARED)
    assert (alone.stdout, alone.stderr) == ("gpudash\n", "")


# ── where nothing can be measured ───────────────────────────────────────────────────────

CLEARED = """
import os, subprocess, sys
del os.environ["PYTHONPATH"]
print(subprocess.run([sys.executable, sys.argv[1]], capture_output=True, text=True).stdout)
"""


def test_a_training_that_is_started_without_pythonpath_is_said_to_be_out_of_reach(tmp_path, python):
    training = written(tmp_path, "print('trained')")
    last = both(python, tmp_path, written(tmp_path, CLEARED, "launch.py"), training, PYTHONPATH="")
    assert last.startswith("gpudash: no training step was seen: torch was never imported, or")
    assert "without PYTHONPATH" in last


@pytest.mark.parametrize(
    "program", [[sys.executable, "-I"], ["/bin/sh"]], ids=["isolated", "other"]
)
def test_what_is_no_python_or_isolated_is_said_to_be_out_of_reach(tmp_path, program):
    """Which options isolate one, tests/script/test_inject.py tells."""
    last = both(*program[:1], tmp_path, *program[1:], written(tmp_path, "exit"))
    assert "gpudash was not loaded; is this python -I, -E or -S, a frozen program" in last


OLD = """
import sys
import torch
print("trained with", torch.__version__)
"""


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.4.1", "its torch is older than 2.5: gpudash measures nothing there"),
        ("2.99.0", "failed in the process that imported torch: ImportError: cannot import name"),
    ],
)
def test_a_torch_that_gpudash_does_not_know_is_named(tmp_path, python, version, why):
    written(tmp_path, f"__version__ = {version!r}", "torch.py")
    last = both(python, tmp_path, written(tmp_path, OLD))
    assert last.startswith("gpudash: no training step was seen: ")
    assert why in last
