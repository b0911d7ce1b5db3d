"""The whole install as a user does it, torch included: 5 GB, for `make test-long`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALLERS = {
    "uv": ["uv", "tool", "install", str(ROOT)],
    "pipx": ["pipx", "install", str(ROOT)],
}

pytestmark = pytest.mark.long


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("installer", INSTALLERS)
def test_the_installed_tool_trains(installer: str, tmp_path: Path) -> None:
    if shutil.which(installer) is None:
        pytest.skip(f"{installer} is not installed")
    programs = tmp_path / "bin"
    places = {
        "UV_TOOL_DIR": tmp_path / "tools",
        "UV_TOOL_BIN_DIR": programs,
        "PIPX_HOME": tmp_path / "tools",
        "PIPX_BIN_DIR": programs,
    }
    environment = os.environ | {name: str(place) for name, place in places.items()}
    subprocess.run(INSTALLERS[installer], env=environment, check=True)
    small = ["--set", "model_scale=small", "--batch-size", "2", "--device", "cpu"]
    trained = [str(programs / "gpudash"), "encdec", *small, "--steps", "3", "--record", "run.csv"]
    subprocess.run(trained, cwd=tmp_path, check=True)
    assert (tmp_path / "run.csv").read_text(encoding="utf-8").count("\n") > 1
