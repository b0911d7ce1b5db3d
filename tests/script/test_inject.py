"""The injected `sitecustomize`: it changes nothing that the script can see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpudash

INJECT = Path(gpudash.__file__).parent / "inject"
TORCH = "print('torch is imported')"
HOOKS = "def install():\n    print('installed', 'torch' in __import__('sys').modules)"


@pytest.fixture
def folder(tmp_path):
    """Return a folder with one-line doubles of torch and gpudash, and the run's directory."""
    (tmp_path / "run").mkdir()
    (tmp_path / "lib/gpudash/script").mkdir(parents=True)
    (tmp_path / "lib/torch.py").write_text(TORCH)
    (tmp_path / "lib/gpudash/__init__.py").touch()
    (tmp_path / "lib/gpudash/script/entry.py").write_text(HOOKS)
    return tmp_path


def run(folder, code, *options, hooked=True, **environment):
    path = [*([str(INJECT)] if hooked else []), str(folder / "lib")]
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env={"PYTHONPATH": os.pathsep.join(path), "_GPUDASH_RUN": str(folder / "run")}
        | environment,
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    marks = sorted(path.suffix for path in (folder / "run").iterdir())
    return done.stdout + done.stderr, marks


def test_torch_is_hooked_once_it_has_been_executed(folder):
    assert run(folder, "import torch") == (
        "torch is imported\ninstalled True\n",
        [".python", ".torch"],
    )


def test_asking_for_torchs_spec_does_not_use_up_the_hook(folder):
    code = "from importlib.util import find_spec; find_spec('torch'); print(1); import torch"
    assert run(folder, code)[0] == "1\ntorch is imported\ninstalled True\n"


def test_the_script_sees_no_trace_of_the_hook(folder):
    code = (
        "import sys, torch; print(sys.path, sys.argv, torch.__spec__, torch.__loader__,"
        " torch.__file__, torch.__spec__.loader is torch.__loader__)"
    )
    (folder / "lib/gpudash/script/entry.py").write_text("def install(): pass")
    ours, theirs = (run(folder, code, hooked=hooked)[0] for hooked in (True, False))
    assert _without_addresses(ours) == _without_addresses(theirs)


def test_a_script_without_torch_is_marked_as_one_of_python(folder):
    assert run(folder, "pass") == ("", [".python"])


def test_the_users_own_sitecustomize_is_run(folder):
    (folder / "lib/sitecustomize.py").write_text("print('theirs')")
    assert run(folder, "import sitecustomize as s; print(s.__file__)")[0] == (
        f"theirs\n{folder}/lib/sitecustomize.py\n"
    )


@pytest.mark.parametrize("gone", ["", "/nonexistent"])
def test_without_gpudash_run_nothing_is_done(folder, gone):
    assert run(folder, "import torch", _GPUDASH_RUN=gone) == ("torch is imported\n", [])


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_isolated_pythons_are_not_hooked(folder, option):
    code = "import sys; print('sitecustomize' in sys.modules)"
    assert run(folder, code, option)[1] == []


def test_without_gpudash_in_its_environment_the_script_goes_on(folder):
    (folder / "lib/gpudash/__init__.py").write_text("import nothing_of_the_kind")
    printed, marks = run(folder, "import torch; print('goes on')")
    assert printed == "torch is imported\ngoes on\n"
    assert marks == [".nogpudash", ".python", ".torch"]


def test_hooks_that_fail_are_marked_and_the_script_goes_on(folder):
    (folder / "lib/gpudash/script/entry.py").write_text("def install(): 1 / 0")
    printed, marks = run(folder, "import torch; print('goes on')")
    assert printed == "torch is imported\ngoes on\n"
    assert marks == [".failed", ".python", ".torch"]


def test_a_failing_import_of_torch_fails_as_without_gpudash(folder):
    (folder / "lib/torch.py").write_text("1 / 0")
    ours, theirs = (run(folder, "import torch", hooked=hooked)[0] for hooked in (True, False))
    assert ours.splitlines()[-1] == theirs.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_spawned_children_are_hooked_too(folder):
    code = (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import torch'],"
        " capture_output=True, text=True).stdout)"
    )
    assert "installed True" in run(folder, code)[0]


def _without_addresses(text):
    return " ".join(word for word in text.split() if not word.startswith("0x"))


def test_a_failing_import_of_torch_has_the_same_traceback_as_without_gpudash(folder):
    (folder / "lib/torch.py").write_text("1 / 0")
    ours, theirs = (run(folder, "import torch", hooked=hooked)[0] for hooked in (True, False))
    assert "ZeroDivisionError" in ours
    assert ours == theirs
