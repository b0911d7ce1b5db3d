"""What a device reaches at its best; on a GPU too, where there is one."""

from functools import partial
from itertools import cycle
from unittest.mock import Mock

import pytest
import torch

from gpudash.instrument import flops
from gpudash.instrument.flops import (
    ALL,
    LEAST_ROOM,
    MOST_ROOM,
    PRECISIONS,
    begin_measuring,
    multiplying,
    side,
)
from tests.workloads.trainings import CPU, CUDA, DEVICES, needs_cuda

HAS = {"cpu": {"fp32", "bf16"}, "cuda": {"fp32", "tf32", "bf16"}}


def measure(device, precisions=ALL):
    return begin_measuring(device, precisions)()


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(flops, "CPU_SIDE", 64)
    monkeypatch.setattr(flops, "CPU_BUDGET_S", 0.0)
    monkeypatch.setattr(flops, "CPU_COPY_BYTES", 1 << 16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("asked", [ALL, ("bf16",), ("fp8",)])
def test_it_has_a_rate_for_each_precision_that_is_asked_for_and_known_and_for_memory(device, asked):
    found = measure(device, asked)
    assert found.matmul_tflops.keys() == HAS[device.type] & {*asked}
    assert all(tflops > 0 for tflops in found.matmul_tflops.values())
    assert found.memory_gb_s > 0


@pytest.mark.parametrize("device", DEVICES)
def test_the_scripts_random_numbers_stay_as_they_were(device):
    torch.manual_seed(7)
    before = torch.get_rng_state(), torch.cuda.get_rng_state_all()
    measure(device)
    assert torch.get_rng_state().equal(before[0])
    for now, then in zip(torch.cuda.get_rng_state_all(), before[1], strict=True):
        assert now.equal(then)


@pytest.mark.parametrize("device", DEVICES)
def test_an_autocast_around_the_measurement_changes_nothing(device):
    with torch.autocast(device.type, torch.bfloat16):
        assert measure(device, ("fp32",)).matmul_tflops.keys() == {"fp32"}
        assert torch.is_autocast_enabled(device.type)


def test_a_failing_measurement_returns_none(monkeypatch):
    monkeypatch.setattr(flops, "_of_cpu", Mock(side_effect=torch.OutOfMemoryError))
    assert measure(CPU) is None


# ---- sizes


def test_all_matrices_are_as_large_as_planned_where_there_is_room():
    assert {name: side(name, MOST_ROOM) for name in PRECISIONS} == {
        "fp32": 4096,
        "tf32": 8192,
        "bf16": 8192,
    }


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("room_bytes", [LEAST_ROOM, LEAST_ROOM * 3, LEAST_ROOM * 20])
def test_three_matrices_fit_into_the_room(precision, room_bytes):
    dtype, _ = PRECISIONS[precision]
    assert 3 * side(precision, room_bytes) ** 2 * dtype.itemsize <= room_bytes
    assert side("fp32", LEAST_ROOM - 1) is None


# ---- how float32 matrices are multiplied


def precisions():
    """Return the settings of both interfaces; None where the older one raises."""
    newer = [
        place.fp32_precision
        for place in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul, torch.backends)
    ]
    try:
        return newer, torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:
        return newer, None, None


BACKENDS = torch.backends
NEWER_EVERYWHERE = partial(setattr, BACKENDS, "fp32_precision", "tf32")
SCRIPTS = {
    "nothing": lambda: None,
    "older tf32": partial(setattr, BACKENDS.cuda.matmul, "allow_tf32", True),
    "older ieee": partial(setattr, BACKENDS.cuda.matmul, "allow_tf32", False),
    "older medium": partial(torch.set_float32_matmul_precision, "medium"),
    "newer tf32": partial(setattr, BACKENDS.cuda.matmul, "fp32_precision", "tf32"),
    "newer everywhere": NEWER_EVERYWHERE,
}


@pytest.fixture
def _own_precision():
    yield
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.mkldnn.matmul.fp32_precision = "none"


@pytest.mark.usefixtures("_own_precision")
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_the_scripts_own_precision_comes_back(script, precision):
    script()
    before = precisions()
    with multiplying(precision):
        wanted = "tf32" if precision == "tf32" else "ieee"
        assert torch.backends.cuda.matmul.fp32_precision == wanted
    assert precisions() == before


@pytest.mark.usefixtures("_own_precision")
def test_a_precision_that_follows_the_general_one_still_does_afterwards():
    NEWER_EVERYWHERE()
    with multiplying("fp32"):
        pass
    torch.backends.fp32_precision = "ieee"
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"


# ---- a GPU whose events are doubles


class Event:
    """An event a fixed number of milliseconds after the one before."""

    apart_ms = iter(())
    now_ms = 0.0

    def __init__(self, _device, *, enable_timing):
        assert enable_timing

    def record(self):
        Event.now_ms += next(Event.apart_ms)
        self.at_ms = Event.now_ms

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at_ms - self.at_ms


@pytest.fixture
def gpu(monkeypatch):
    """A fake GPU that takes 3, 2 and 2.5 ms for any work."""
    monkeypatch.setattr(torch, "Event", Event)
    monkeypatch.setattr(Event, "apart_ms", cycle([7.0, 3.0, 2.0, 2.5]))
    monkeypatch.setattr(flops, "SMALLEST_SIDE", 64)

    def capable_of(*capability):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
        return torch.empty(3 * 64 * 64 * 4, dtype=torch.uint8)

    return capable_of


def test_the_best_of_some_repeats_counts(gpu):
    room = gpu(9, 0)
    found = flops._in_room(room, ["fp32", "tf32"])()
    assert found.matmul_tflops == pytest.approx(dict.fromkeys(("fp32", "tf32"), 2 * 64**3 / 2e9))
    assert found.memory_gb_s == pytest.approx(room.numel() / 2e6)


def test_the_host_is_free_until_it_reads_the_result(gpu, monkeypatch):
    waits = []
    monkeypatch.setattr(Event, "synchronize", lambda _self: waits.append("waits"))
    read = flops._in_room(gpu(9, 0), ["bf16"])
    assert not waits
    read()
    assert waits == ["waits"]


def test_a_gpu_older_than_ampere_has_only_fp32(gpu):
    assert flops._in_room(gpu(7, 5), [*PRECISIONS])().matmul_tflops.keys() == {"fp32"}


# ---- a GPU's memory


@needs_cuda
def test_the_measurement_frees_its_memory():
    measure(CUDA)  # cuBLAS keeps its workspace from the first matmul on
    torch.empty(100 << 20, dtype=torch.uint8, device=CUDA)  # stays in the script's pool
    before = torch.cuda.memory_reserved(CUDA), torch.cuda.memory_allocated(CUDA)
    measure(CUDA)
    assert (torch.cuda.memory_reserved(CUDA), torch.cuda.memory_allocated(CUDA)) == before


@needs_cuda
def test_without_free_memory_there_is_no_result(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (LEAST_ROOM * 4 - 64, 1 << 40))
    assert measure(CUDA) is None
