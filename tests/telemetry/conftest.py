import ctypes
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from tests.telemetry.shim import Driver, build


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    def into_the_bindings(library: Path) -> None:
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    return into_the_bindings


@pytest.fixture
def driver(
    library: Path, load: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Driver:
    """The stand-in loaded into the bindings of this process, showing two healthy GPUs."""
    load(library)
    monkeypatch.setenv("NVML_SHIM", str(tmp_path / "gpu"))
    return Driver(tmp_path / "gpu")
