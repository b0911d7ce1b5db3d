"""The whole install as a user does it: torch and its 5 GB included, for `make test-long`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.waiting import done_without_path

ROOT = Path(__file__).parents[2]
INSTALLERS = {"uv": ["uv", "tool", "install"], "pipx": ["pipx", "install"]}
BASE = str(ROOT)
WORKLOADS = f"gpudash[workloads] @ {ROOT.as_uri()}"

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(params=INSTALLERS)
def install(request: pytest.FixtureRequest, tmp_path: Path):
    """Install what is named into an environment of its own; return its program."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    programs = tmp_path / "bin"
    places = {
        "UV_TOOL_DIR": tmp_path / "tools",
        "UV_TOOL_BIN_DIR": programs,
        "PIPX_HOME": tmp_path / "tools",
        "PIPX_BIN_DIR": programs,
    }
    kept = {one: of for one, of in os.environ.items() if one not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = kept | {name: str(place) for name, place in places.items()}

    def of(what: str) -> str:
        subprocess.run([*INSTALLERS[request.param], what], env=environment, check=True)
        return str(programs / "gpudash")

    return of


def test_the_installed_tool_trains(install, tmp_path: Path) -> None:
    small = ["--set", "model_scale=small", "--batch-size", "2", "--device", "cpu"]
    trained = [install(WORKLOADS), "encdec", *small, "--steps", "3", "--record", "run.csv"]
    subprocess.run(trained, cwd=tmp_path, check=True)
    assert (tmp_path / "run.csv").read_text(encoding="utf-8").count("\n") > 1


def test_the_base_is_small_has_no_torch_and_names_the_line_that_brings_it(
    install, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    gpudash = install(BASE)
    alone = done_without_path(gpudash, cwd=tmp_path)
    assert alone.returncode == 2, alone.stderr
    installer = request.node.callspec.params["install"]
    assert alone.stdout.splitlines()[-1].strip().startswith(" ".join(INSTALLERS[installer]))
    files = (tmp_path / "tools").rglob("*")
    size_mib = sum(file.lstat().st_size for file in files if not file.is_dir()) >> 20
    assert size_mib < 300
