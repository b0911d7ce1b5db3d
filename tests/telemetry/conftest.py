import ctypes
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from gpudash.telemetry import nvml, sampler, watched_gpu
from tests.telemetry.shim import Driver, build
from tests.telemetry.stream import FAST_S, SLOW_S, Stream
from tests.waiting import PATIENCE_S


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
    """The stand-in loaded into the bindings of this process, showing two healthy GPUs.

    A copy of it: what one test leaves open or closes twice, the library of another never knows.
    """
    load(shutil.copy(library, tmp_path / "driver.so"))
    monkeypatch.setenv("NVML_SHIM", str(tmp_path / "gpu"))
    return Driver(tmp_path / "gpu")


@pytest.fixture
def stream(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    opened = Stream()
    monkeypatch.setattr(watched_gpu, "FAST_S", FAST_S)
    monkeypatch.setattr(watched_gpu, "SLOW_S", SLOW_S)
    monkeypatch.setattr(watched_gpu, "REOPEN_S", 2 * SLOW_S)
    monkeypatch.setattr(watched_gpu, "REOPEN_MOST_S", 2 * SLOW_S)
    monkeypatch.setattr(nvml, "ASK_AGAIN_S", 2 * SLOW_S)
    monkeypatch.setattr(sampler, "HOST_S", FAST_S)
    monkeypatch.setattr(sampler, "RANKS_S", SLOW_S)
    monkeypatch.setattr(sampler, "list_gpus", opened.list_gpus)
    yield opened
    opened.sampler.stop(PATIENCE_S)  # its threads would ask the next test's driver
