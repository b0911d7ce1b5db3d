"""What other processes than the training's use of a GPU, by the driver's own samples."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpudash.protocol.readings import GpuReading
from gpudash.telemetry import procfs
from gpudash.telemetry.gpu import Gpu, open_gpu
from tests.telemetry.shim import FIRST, Driver
from tests.telemetry.stream import Stream
from tests.waiting import until

OURS, NOT_SUPPORTED, NOT_FOUND = os.getpid(), 3, 6


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests run in a container too."""
    monkeypatch.setattr(procfs, "are_of_machine", lambda: True)


@pytest.fixture
def gpu(driver: Driver) -> Iterator[Gpu]:
    opened = open_gpu(FIRST)
    opened.training = lambda: (OURS,)
    yield opened
    opened.close()


@pytest.fixture
def other() -> Iterator[int]:
    """The pid of a process that is no child of this one: its parent has ended."""
    code = "import subprocess as s; print(s.Popen(['sleep', '60'], stdout=s.DEVNULL).pid)"
    pid = int(subprocess.check_output([sys.executable, "-c", code]))
    yield pid
    os.kill(pid, 9)


def others(gpu: Gpu) -> float | None:
    return gpu.slow().others_pct


def test_what_others_use_is_told_apart_from_the_training(gpu: Gpu, driver: Driver, other: int):
    driver.says(f"process.0 {OURS} 50", f"process.1 {other} 30", "process.2 1 10")
    reading = gpu.slow()
    assert reading.others_pct == 40.0
    assert reading.busiest_other == f"sleep (pid {other})"


def test_children_of_the_training_are_the_training(gpu: Gpu, driver: Driver):
    with subprocess.Popen(["sleep", "60"]) as child:
        driver.says(f"process.0 {OURS} 50", f"process.1 {child.pid} 30")
        assert others(gpu) == 0.0
        child.kill()


@pytest.mark.parametrize(
    "says",
    [
        ("process.0 4194305 50", "process.1 4194306 30"),  # the training is not listed
        (),
        (f"process.0 {OURS} 0",),  # no samples
        (f"process.0 {OURS} 50", f"nvmlDeviceGetProcessUtilization.error {NOT_FOUND}"),
        (f"process.0 {OURS} 50", "nvmlDeviceGetComputeRunningProcesses_v3.error 10"),
    ],
)
def test_what_is_not_known_is_no_zero(gpu: Gpu, driver: Driver, says: tuple[str, ...]):
    driver.says(*says)
    assert others(gpu) is None
    assert "other processes" not in gpu.unread


def test_a_device_that_never_has_it_says_so_and_is_asked_once(gpu: Gpu, driver: Driver):
    driver.says(f"process.0 {OURS} 50", f"nvmlDeviceGetProcessUtilization.error {NOT_SUPPORTED}")
    assert [others(gpu) for _ in range(3)] == [None] * 3
    assert gpu.unread["other processes"] == "not supported by this GPU"
    assert driver.asked("nvmlDeviceGetProcessUtilization") == 1


def test_a_number_that_no_gpu_can_have_is_left_out(gpu: Gpu, driver: Driver):
    driver.says(f"process.0 {OURS} 50", "process.1 1 4000000")
    assert others(gpu) is None


def test_the_sampler_knows_which_processes_train(stream: Stream, driver: Driver):
    driver.says(f"process.0 {OURS} 50", "process.1 1 30")
    stream.sampler.watch(OURS, FIRST)
    stream.sampler.start()

    def newest() -> GpuReading | None:
        return next((one for one in stream.gpu if one.others_pct is not None), None)

    assert until(newest).others_pct == 30.0
