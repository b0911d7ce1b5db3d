"""The injected `sitecustomize`: it changes nothing that the script can see."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import coverage
import pytest

import gpudash

INJECT = Path(gpudash.__file__).parent / "inject"
TORCH = "print('torch is imported')"
HOOKS = "def install():\n    print('installed', 'torch' in __import__('sys').modules)"


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the run's directory, and one-line doubles of torch and of our hooks."""
    (tmp_path / "run").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/torch.py").write_text(TORCH)
    shutil.copytree(INJECT, tmp_path / "gpudash/inject", ignore=lambda *_: ["__pycache__"])
    (tmp_path / "gpudash/script").mkdir()
    (tmp_path / "gpudash/script/entry.py").write_text(HOOKS)
    (tmp_path / "gpudash/__init__.py").write_text("step = 'our step'")
    return tmp_path


def run(folder, code, *options, hooked=True, python=sys.executable, **environment):
    path = [*([str(folder / "gpudash/inject")] if hooked else []), str(folder / "lib")]
    done = subprocess.run(
        [python, *options, "-c", code],
        env={"PYTHONPATH": os.pathsep.join(path), "_GPUDASH_RUN": str(folder / "run")}
        | environment,
        cwd=folder / "lib",
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


WRAPS = """
import sys
from importlib.util import find_spec
class Wraps:
    asks = False
    def find_spec(self, name, path=None, target=None):
        if name != 'torch' or Wraps.asks:
            return None
        Wraps.asks = True
        spec = find_spec(name)
        Wraps.asks = False
        class Loader:
            create_module = lambda self, spec, of=spec.loader: of.create_module(spec)
            exec_module = lambda self, module, of=spec.loader: of.exec_module(module)
        spec.loader = Loader()
        return spec
sys.meta_path.insert(1, Wraps())
import torch
"""


INSTALLED = "torch is imported\ninstalled True\n"
SPAWNS = (
    "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import torch'],"
    " capture_output=True, text=True).stdout, end='')"
)
SAID = {
    "asking for torch's spec does not use up the hook": (
        "from importlib.util import find_spec; find_spec('torch'); print(1); import torch",
        f"1\n{INSTALLED}",
    ),
    "a cleared environment": (
        "import os; os.environ.clear(); import torch; print('goes on')",
        f"{INSTALLED}goes on\n",
    ),
    "another tool that wraps the loader": (WRAPS, INSTALLED),
    "a spawned child": (SPAWNS, INSTALLED),
    "no torch": ("pass", ""),
}


@pytest.mark.parametrize(("code", "said"), SAID.values(), ids=SAID)
def test_torch_is_hooked_once_however_it_is_imported(folder, code, said):
    assert run(folder, code)[0] == said


def test_the_script_sees_no_trace_of_the_hook(folder):
    code = (
        "import sys, torch; print(sys.path, sys.argv, torch.__spec__, torch.__loader__,"
        " torch.__file__, torch.__spec__.loader is torch.__loader__)"
    )
    (folder / "gpudash/script/entry.py").write_text("def install(): pass")
    ours, theirs = (run(folder, code, hooked=hooked)[0] for hooked in (True, False))
    assert _without_addresses(ours) == _without_addresses(theirs)


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
    assert run(folder, "import sys; print('sitecustomize' in sys.modules)", option)[1] == []


@pytest.mark.parametrize(
    ("version", "marks"),
    [("2.4.1+cu121", [".oldtorch", ".python", ".torch"]), ("2.5.0", [".python", ".torch"])],
)
def test_a_torch_that_is_too_old_is_marked_and_left_alone(folder, version, marks):
    (folder / "lib/torch.py").write_text(f"__version__ = {version!r}")
    printed, found = run(folder, "import torch; print('goes on')")
    assert found == marks
    assert printed == ("" if ".oldtorch" in marks else "installed True\n") + "goes on\n"


@pytest.mark.parametrize(("version", "mark"), [((3, 9), ".oldpython"), ((3, 15), ".newpython")])
def test_a_python_too_old_or_too_new_is_marked_and_left_alone(folder, version, mark):
    # the first module of this name runs before ours, and has it believe in another version
    (folder / "before").mkdir()
    code = f"import sys; sys.version_info = {version}; sys.path.remove({str(folder / 'before')!r})"
    (folder / "before/sitecustomize.py").write_text(
        f"{code}\ndel sys.modules['sitecustomize']\nimport sitecustomize"
    )
    path = ("before", "gpudash/inject", "lib")
    printed, marks = run(
        folder,
        "import torch; print('goes on')",
        PYTHONPATH=os.pathsep.join(str(folder / one) for one in path),
    )
    assert printed == "torch is imported\ngoes on\n"
    assert marks == sorted([mark, ".python"])


OTHER_PYTHONS = sorted(
    path
    for folder in (Path("/usr/bin"), *Path.home().glob(".pyenv/versions/*/bin"))
    for path in folder.glob("python[23].[0-9]*")
    if re.fullmatch(r"python\d\.\d+", path.name)
)
"""Whatever other Pythons this machine has."""


@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.name)
def test_any_python_starts_as_without_gpudash(folder, python):
    (folder / "gpudash/script/entry.py").write_text("def install(): pass")
    (folder / "lib/torch.py").write_text("")
    (folder / "lib/sitecustomize.py").write_text("print('theirs')")
    code = "import sys, torch; print([type(sys).__name__, sys.path])"
    (ours, marks), (theirs, _) = (
        run(folder, code, hooked=hooked, python=python) for hooked in (True, False)
    )
    assert ours == theirs
    assert ".python" in marks
    known = (3, 10) <= tuple(map(int, python.name[6:].split("."))) <= (3, 14)
    assert (".torch" in marks) == known


# ── whose gpudash ───────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A Python where nothing is installed."""
    place = tmp_path_factory.mktemp("bare")
    venv.create(place, symlinks=True)
    return place / "bin/python"


def test_a_script_may_import_gpudash_where_it_is_not_installed(folder, bare):
    code = "import gpudash; print(gpudash.step)"
    assert run(folder, code, python=bare) == ("our step\n", [".python"])
    assert "ModuleNotFoundError" in run(folder, code, python=bare, hooked=False)[0]


@pytest.mark.parametrize("name", ["gpudash", "protocol", "hooks", "script", "errors"])
def test_a_projects_own_modules_are_its_own(folder, name):
    (folder / f"lib/{name}.py").write_text("step = 'their step'")
    assert run(folder, f"import torch, {name}; print({name}.step)")[0] == (
        "torch is imported\ninstalled True\ntheir step\n"
    )


def test_a_process_that_runs_already_can_be_hooked_once(folder):
    inject = str(folder / "gpudash/inject")
    code = (
        f"import sys, torch; sys.path.insert(0, {inject!r}); import _gpudash; sys.path.pop(0)\n"
        "for _ in range(2): _gpudash.begin(lambda *what: print(*what))"
    )
    said, _ = run(folder, code, hooked=False)
    assert said == "torch is imported\ntorch\ninstalled True\n"


def test_nothing_else_of_ours_is_found(folder):
    code = "import torch\nimport script"
    assert "ModuleNotFoundError: No module named 'script'" in run(folder, code)[0]


def test_coverage_counts_none_of_our_files_wherever_they_are(folder):
    entry = "from . import other\ndef install(): print('ours', other.late())"
    late = "def late():\n    from . import imported_late\n    return imported_late.FILE"
    for name, text in (("entry", entry), ("other", late), ("imported_late", "FILE = 1")):
        (folder / f"gpudash/script/{name}.py").write_text(text)
    (folder / "lib/train.py").write_text("import torch")
    run_as = "import sys; from coverage.cmdline import main; main(sys.argv[1:])"
    code = f"import sys; sys.argv[1:] = ['run', 'train.py']; exec({run_as!r})"
    said, marks = run(folder, code)
    assert said.endswith("torch is imported\nours 1\n")
    assert marks == [".python", ".torch"]
    counted = coverage.CoverageData(str(folder / "lib/.coverage"))
    counted.read()
    assert [one for one in counted.measured_files() if "/gpudash/" in one] == []
    assert str(folder / "lib/train.py") in counted.measured_files()


def test_hooks_that_fail_are_marked_and_the_script_goes_on(folder):
    (folder / "gpudash/script/entry.py").write_text("def install(): 1 / 0")
    said = run(folder, "import torch; print('goes on')")
    assert said == ("torch is imported\ngoes on\n", [".failed", ".python", ".torch"])
    (mark,) = (folder / "run").glob("*.failed")
    assert mark.read_text() == "ZeroDivisionError: division by zero"


def _without_addresses(text):
    return " ".join(word for word in text.split() if not word.startswith("0x"))


def test_a_failing_import_of_torch_has_the_same_traceback_as_without_gpudash(folder):
    (folder / "lib/torch.py").write_text("1 / 0")
    ours, theirs = (run(folder, "import torch", hooked=hooked)[0] for hooked in (True, False))
    assert "ZeroDivisionError" in ours
    assert ours == theirs
