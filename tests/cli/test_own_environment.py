"""`gpudash run` over a script in an environment of its own: torch is there, and gpudash is not."""

import os
import sys
import venv
import zipapp
from pathlib import Path
from types import SimpleNamespace

import pytest

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
FROM_ROOT = f"import sys; sys.path[0] = {str(ROOT)!r}; from gpudash.cli.main import main"
RUN = [sys.executable, "-c", f"{FROM_ROOT}; sys.exit(main(sys.argv[1:]))", "run"]
"""gpudash, which the script cannot import by the same path."""
TRAINING = """
import sys
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = TensorDataset(torch.randn(160, 4), torch.randn(160, 1))
loader = DataLoader(rows, batch_size=4, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(batches=loader):
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        time.sleep(0.005)  # long enough to be measured

def tell():
    print(*(one.double().sum().item() for one in model.parameters()))
"""
FEW = f"{TRAINING}\ntrain(); tell()"


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The site-packages of an environment with torch alone."""
    place = tmp_path_factory.mktemp("own")
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    for entry in map(Path, sys.path):
        for name in TORCHS if entry.name == "site-packages" else ():
            if (entry / name).exists() and not (packages / name).exists():
                (packages / name).symlink_to(entry / name)
    return packages


@pytest.fixture
def python(packages):
    """Its Python."""
    return packages.parents[2] / "bin" / "python"


def both(python, folder, *words, **environment):
    """Run a script without gpudash and with it; the output of both, and gpudash's last line."""
    plain = done_without_path(python, *words, cwd=folder, **environment)
    watched = done_without_path(*RUN, "--watch", "--", python, *words, cwd=folder, **environment)
    *errors, last = watched.stderr.splitlines()
    assert errors == plain.stderr.splitlines()
    assert (watched.stdout, watched.returncode) == (plain.stdout, plain.returncode)
    return SimpleNamespace(said=watched.stdout, last=last)


def written(folder, code, name="train.py"):
    path = folder / name
    path.write_text(code)
    return path


def test_it_is_measured_and_computes_the_same(tmp_path, python):
    code = f"{FEW}\nprint([one for one in sys.modules if 'msgspec' in one or one == 'gpudash'])"
    one = both(python, tmp_path, written(tmp_path, code))
    assert one.last.startswith("gpudash: 40 steps")
    assert one.said.endswith("[]\n")


def test_its_own_msgspec_may_be_broken(tmp_path, python):
    written(tmp_path, "raise RuntimeError('half an upgrade')", "msgspec.py")
    assert both(python, tmp_path, written(tmp_path, FEW)).last.startswith("gpudash: 40 steps")


def test_names_that_are_no_text_do_not_hide_it(tmp_path, python):
    folder = tmp_path / "b\udce4r"
    folder.mkdir()
    written(folder, FEW, "tr\udcff.py")
    words = [*RUN, "--record", "r\udcff.csv", "--", python, "tr\udcff.py", "\udcff"]
    one = done_without_path(*words, cwd=folder, **{"B\udce4R": "\udcff"})
    assert one.stderr.startswith("gpudash: 40 steps"), one.stderr
    assert ",tr\ufffd.py,0," in (folder / "r\udcff.csv").read_text()


def test_what_its_pythonpath_has_is_for_it_and_not_for_gpudash(tmp_path, python):
    folder = tmp_path / "src"
    folder.mkdir()
    for name in ("msgspec", "workloads", "platformdirs"):
        written(folder, "raise RuntimeError('half an upgrade')", f"{name}.py")
        written(tmp_path, "raise RuntimeError('in the working folder')", f"{name}.py")
    written(folder, "step = 'my own'", "helper.py")
    path = written(tmp_path, f"import helper; print(helper.step)\n{FEW}")
    run = [sys.executable, "-m", "gpudash", "run", "--watch", "--", python, path]
    one = done_without_path(*run, cwd=tmp_path, PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")
    assert one.stderr.splitlines()[-1].startswith("gpudash: 40 steps"), one.stderr
    assert one.stdout.startswith("my own\n")


def test_its_own_modules_may_have_names_of_ours(tmp_path, python):
    names = ("gpudash", "protocol", "hooks", "errors", "script")
    for name in names:
        written(tmp_path, f"step = 'my own {name}'", f"{name}.py")
    said = "; ".join(f"import {name}; print({name}.step)" for name in names)
    one = both(python, tmp_path, written(tmp_path, f"{said}\n{FEW}"))
    assert one.last.startswith("gpudash: 40 steps")
    assert one.said.count("my own") == len(names)


DECLARED = f"""
import gpudash
{TRAINING}
for pair in zip(loader, loader):
    with gpudash.step(samples=8):
        train(pair)
print(gpudash.__name__)
"""


def test_it_may_declare_its_steps_all_the_same(tmp_path, python):
    path = written(tmp_path, DECLARED)
    one = done_without_path(*RUN, "--watch", "--", python, path, cwd=tmp_path)
    assert one.stdout == "gpudash\n", one.stderr
    assert one.stderr.splitlines()[-1].startswith("gpudash: 40 steps")


BY_CALLBACK = f"""
from gpudash.integrations.huggingface import GpudashCallback
{TRAINING}
callback = GpudashCallback()
for pair in zip(loader, loader):
    callback.on_step_begin()
    train(pair)
    callback.on_step_end()
"""


def test_a_frameworks_callback_is_there_too(tmp_path, python):
    written(tmp_path, "class TrainerCallback: pass", "transformers.py")
    path = written(tmp_path, BY_CALLBACK)
    one = done_without_path(*RUN, "--watch", "--", python, path, cwd=tmp_path)
    assert one.stderr.splitlines()[-1].startswith("gpudash: 40 steps")


def test_steps_declared_through_an_installed_gpudash_reach_the_hooks(tmp_path):
    path = written(tmp_path, DECLARED)
    installed = {"PYTHONPATH": str(ROOT)}
    one = done_without_path(*RUN, "--watch", "--", sys.executable, path, cwd=tmp_path, **installed)
    assert one.stderr.splitlines()[-1].startswith("gpudash: 40 steps")
    alone = done_without_path(sys.executable, path, cwd=tmp_path, **installed)
    assert (alone.stdout, alone.stderr) == ("gpudash\n", "")


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_its_loader_workers_begin_in_either_way(tmp_path, python, how):
    code = f"""
if __name__ == "__main__":
    {TRAINING.replace(chr(10), chr(10) + "    ")}
    train(DataLoader(rows, batch_size=4, num_workers=2, multiprocessing_context={how!r}))
    tell()
"""
    assert both(python, tmp_path, written(tmp_path, code)).last.startswith("gpudash: 40 steps")


def test_a_zipped_program_is_measured_too(tmp_path, python):
    (tmp_path / "app").mkdir()
    written(tmp_path / "app", FEW, "__main__.py")
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    one = done_without_path(*RUN, "--watch", "--", python, tmp_path / "app.pyz", cwd=tmp_path)
    assert one.stderr.splitlines()[-1].startswith("gpudash: 40 steps")


# ── where nothing can be measured ───────────────────────────────────────────────────────

CLEARED = """
import os, subprocess, sys
del os.environ["PYTHONPATH"]
print(subprocess.run([sys.executable, sys.argv[1]], capture_output=True, text=True).stdout)
"""


def test_a_training_that_is_started_without_pythonpath_is_said_to_be_out_of_reach(tmp_path, python):
    training = written(tmp_path, FEW)
    launcher = written(tmp_path, CLEARED, "launch.py")
    one = both(python, tmp_path, launcher, training, PYTHONPATH="")
    assert one.last.startswith("gpudash: no training step was seen: torch was never imported, or")
    assert "without PYTHONPATH" in one.last


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_an_isolated_python_is_said_to_be_out_of_reach(tmp_path, python, option):
    one = both(python, tmp_path, option, written(tmp_path, "print('trained')"))
    assert "gpudash was not loaded; is this python -I, -E or -S" in one.last
    assert one.said == "trained\n"


def test_a_program_that_is_no_python_is_said_to_be_out_of_reach(tmp_path):
    frozen = written(tmp_path, "#!/bin/sh\necho trained\n", "frozen")
    frozen.chmod(0o700)
    one = both(frozen, tmp_path)
    assert "gpudash was not loaded; is this python -I, -E or -S, a frozen program" in one.last


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
    one = both(python, tmp_path, written(tmp_path, OLD))
    assert one.last.startswith("gpudash: no training step was seen: ")
    assert why in one.last
