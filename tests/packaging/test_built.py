"""What users install: wheel and sdist, built here, in an environment of their own.

Third-party packages are borrowed from the environment of the tests, torch's 5 GB among them, by a
path file. `make test-long` installs them all.
"""

import ast
import re
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.waiting import done_without_path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOLDERS = ("gpudash", "workloads")


def run(*command: str | Path, cwd: Path) -> str:
    done = done_without_path(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel made of the sdist: one for all modules."""
    folder = tmp_path_factory.getbasetemp() / "dist"
    if folder.exists():
        return folder
    folder.mkdir()
    backend = "from hatchling.build import build_sdist, build_wheel as w; import sys; "
    run(sys.executable, "-c", backend + "build_sdist(sys.argv[1])", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    run(sys.executable, "-c", backend + "w(sys.argv[1])", folder, cwd=source)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with nothing but the wheel and what is borrowed."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run(*pip, "--python", place, "install", "--no-deps", "--no-index", wheel, cwd=place)
    borrowed = [path for path in map(Path, sys.path) if path.name == "site-packages"]
    (packages / "borrowed.pth").write_text("\n".join(map(str, borrowed)) + "\n")
    return place / "bin"


def tracked(folder: str) -> set[str]:
    return set(run("git", "ls-files", folder, cwd=ROOT).split())


def test_the_wheel_holds_every_file_of_both_packages_and_nothing_else_and_is_small(
    built: Path,
) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    code = {name for name in names if name.split("/")[0] in FOLDERS}
    assert code == set().union(*map(tracked, FOLDERS))
    assert all(".data/data/share/" in name for name in names - code)
    assert wheel.stat().st_size < 2_000_000


def test_the_installed_program_runs_from_anywhere(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "gpudash", "--version", cwd=tmp_path).startswith("gpudash ")
    assert "encdec" in run(installed / "gpudash", "list", cwd=tmp_path)
    where = "import gpudash, workloads; print(gpudash.__file__, workloads.__file__)"
    assert run(installed / "python", "-c", where, cwd=tmp_path).count(str(installed.parent)) == 2


def test_the_installed_program_trains(installed: Path, tmp_path: Path) -> None:
    small = ["--set", "model_scale=small", "--batch-size", "2", "--set", "num_workers=0"]
    asked = ["encdec", "--device", "cpu", *small, "--steps", "3", "--record", "run.csv"]
    run(installed / "gpudash", *asked, cwd=tmp_path)
    assert (tmp_path / "run.csv").read_text(encoding="utf-8").count("\n") > 1


# ── what is needed, and what is declared ────────────────────────────────────────────────


BY_NAME = ("import_module",)
"""Functions that import what their argument names."""


def declared(requirements: list[str]) -> set[str]:
    names = (re.match(r"[\w.-]+", requirement) for requirement in requirements)
    return {re.sub(r"[-_.]+", "-", name[0]).lower() for name in names if name}


def imported() -> set[str]:
    """The top-level modules that the packages import, their own and Python's left out."""
    found = set()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(BY_NAME):
                found |= {str(arg.value) for arg in node.args if isinstance(arg, ast.Constant)}
    # Python imports the user's `sitecustomize`, and so do we; the other is our name in a training
    ours = {*FOLDERS, "sitecustomize", "_gpudash"}
    return {name.partition(".")[0] for name in found} - set(sys.stdlib_module_names) - ours


EXTRAS = {
    re.sub(r"[-_.]+", "-", name)
    for extra in PROJECT["optional-dependencies"].values()
    for name in declared(extra)
}
NOT_INSTALLED = {
    "lightning": ["lightning"],
    "mcp": ["mcp"],
    "nvidia": ["nvidia-nvimgcodec-cu13"],
    "transformers": ["transformers"],
}
"""Import names and distributions of extras that the tests can do without."""
BY_TEXTUAL = {"rich"}
"""A dependency of Textual's, and part of what it shows."""


def test_every_import_is_declared_and_nothing_declared_is_unused() -> None:
    owners = packages_distributions() | NOT_INSTALLED
    used = {re.sub(r"[-_.]+", "-", owners[name][0]).lower() for name in imported()} - BY_TEXTUAL
    needed = declared(PROJECT["dependencies"])
    assert used - EXTRAS <= needed
    assert needed <= used
    assert used >= EXTRAS


def test_the_base_has_nothing_that_brings_a_torch() -> None:
    heavy = declared(PROJECT["optional-dependencies"]["workloads"])
    assert heavy == {"torch", "torchvision", "scipy", "pillow"}
    assert not declared(PROJECT["dependencies"]) & heavy
