"""Opening the driver library: the GPUs listed, and the sentence for each failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpudash.errors import GpudashError
from gpudash.telemetry.gpu import GpuName, list_gpus, open_gpu
from gpudash.telemetry.nvml import GpuUnavailable
from tests.telemetry.shim import FIRST, SECOND, Driver

OPEN = f"""
from gpudash.telemetry.gpu import open_gpu
from gpudash.telemetry.nvml import GpuUnavailable
try:
    print(open_gpu({FIRST!r}).fast().values["power_w"])
except GpuUnavailable as error:
    print(error)
"""


def run(code: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_library_is_found_as_the_system_finds_it(library: Path, tmp_path: Path):
    assert run(OPEN, Driver(tmp_path / "gpu").environment(library)) == "251.5"


def test_an_unusable_library_is_the_reason(tmp_path: Path):
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    assert run(OPEN, environment) == ("no NVIDIA driver library (libnvidia-ml.so.1) was found")


def test_the_bindings_are_imported_only_when_a_gpu_is_opened():
    code = "import sys, gpudash.telemetry.sampler; print('pynvml' in sys.modules)"
    assert run(code, dict(os.environ)) == "False"


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("nvmlInitWithFlags.error 9", "the NVIDIA driver is not loaded"),
        ("nvmlInitWithFlags.error 18", "differ in version"),
        ("nvmlInitWithFlags.error 4", "refuses permission"),
        ("nvmlInitWithFlags.error 13", "a newer one is needed"),
        ("nvmlInitWithFlags.error 999", "answers “Unknown Error”"),
        ("gpus 0", "no NVIDIA GPU is present"),
        ("nvmlDeviceGetCount_v2.error 999", "answers “Unknown Error”"),
        ("nvmlDeviceGetHandleByUUID.error 4", f"{FIRST} cannot be opened: .* permission"),
        ("nvmlDeviceGetHandleByUUID.error 15", "the GPU was lost"),
        (f"uuid.0 {SECOND}", f"{FIRST} cannot be opened: the NVIDIA driver shows no such GPU"),
    ],
)
def test_a_gpu_that_cannot_be_opened_says_why(driver: Driver, says: str, reason: str):
    driver.says(says)
    with pytest.raises(GpuUnavailable, match=reason):
        open_gpu(FIRST)


def test_a_failed_opening_leaves_no_connection_behind(driver: Driver):
    with pytest.raises(GpuUnavailable):
        open_gpu("GPU-unknown")
    assert driver.asked("nvmlShutdown") == driver.asked("nvmlInitWithFlags") == 1


def test_the_reason_is_a_line_for_the_user():
    assert issubclass(GpuUnavailable, GpudashError)


def test_every_gpu_is_listed_by_name_and_uuid(driver: Driver):
    assert list_gpus() == (
        "580.65.06",
        (
            GpuName(index=0, uuid=FIRST, name="Hopper One"),
            GpuName(index=1, uuid=SECOND, name="Hopper Two"),
        ),
    )


@pytest.mark.parametrize("code", [4, 15], ids=["no permission", "lost"])
def test_a_gpu_that_does_not_answer_hides_no_other(driver: Driver, code: int):
    driver.says(f"gpu0.nvmlDeviceGetHandleByIndex_v2.error {code}")
    assert [gpu.uuid for gpu in list_gpus()[1]] == [SECOND]


def test_a_nameless_gpu_is_still_a_gpu(driver: Driver):
    driver.says("nvmlDeviceGetName.error 999")
    gpu = open_gpu(FIRST)
    assert gpu.fast().name == "NVIDIA GPU"
    gpu.close()
