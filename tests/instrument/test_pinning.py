"""What page-locked memory costs, also on a GPU if there is one."""

from contextlib import nullcontext
from tempfile import TemporaryFile

import pytest
import torch
from torch import Tensor

from gpudash.instrument import pinning
from gpudash.instrument.pinning import MOST_BYTES, measure, sample
from gpudash.protocol.inspections import Pinning
from tests.workloads.trainings import CPU, CUDA, needs_cuda


@pytest.fixture(autouse=True)
def nothing_known():
    pinning._measured.cache_clear()


@pytest.fixture
def no_gpu(monkeypatch):
    """Replace page-locked and GPU memory by ordinary memory; record the copies."""
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self.clone())
    monkeypatch.setattr(torch.cuda, "MemPool", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 30, 1 << 31))
    for name in ("use_mem_pool", "device"):
        monkeypatch.setattr(torch.cuda, name, lambda _: nullcontext())
    monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: None, raising=False)


@pytest.mark.usefixtures("no_gpu")
def test_the_best_of_the_repeats_is_scaled_to_a_step_and_the_slowest_is_compared(monkeypatch):
    took_ms = iter([9.0, 8.0, 1.0, 6.0, 1.5, 4.0, 0.25, 0.3, 0.5])
    monkeypatch.setattr(pinning, "_ms", lambda run: (run(), next(took_ms))[1])
    found = measure(CPU, [1024, 48] * 10, 10)
    assert found == Pinning(pin_ms=1, thread_pin_ms=4, copy_ms=0.25, slower=2.0)


@pytest.mark.usefixtures("no_gpu")
def test_a_part_of_a_large_batch_stands_for_all_of_it(monkeypatch):
    monkeypatch.setattr(pinning, "_ms", lambda run: (run(), 1.0)[1])
    monkeypatch.setattr(pinning, "MOST_BYTES", 1024)
    assert measure(CPU, [4096] * 10, 10) == Pinning(pin_ms=4, thread_pin_ms=4, copy_ms=4)


@pytest.mark.usefixtures("no_gpu")
def test_batches_of_the_same_sizes_are_measured_once(monkeypatch):
    runs = []
    monkeypatch.setattr(pinning, "_ms", lambda run: (runs.append(1), run(), 1.0)[2])
    found = measure(CPU, [1024, 48] * 10, 10)
    of_a_batch = len(runs)
    assert measure(CPU, [1024, 48] * 3, 3) == found
    assert len(runs) == of_a_batch
    measure(CPU, [2048, 48] * 3, 3)
    assert len(runs) == 2 * of_a_batch


@pytest.mark.usefixtures("no_gpu")
def test_too_little_memory_is_not_remembered_nor_any_of_it_allocated(monkeypatch):
    monkeypatch.setattr(pinning, "_ms", lambda run: (run(), 1.0)[1])
    asked, threads = [], torch.get_num_threads()
    for free_bytes, batch in ((1024, [1024]), (3 << 20, [1 << 20])):
        with monkeypatch.context() as full:
            full.setattr(torch.cuda, "mem_get_info", lambda _, free=free_bytes: (free, 1 << 31))
            full.setattr(torch.cuda, "use_mem_pool", lambda _: asked.append(1) or nullcontext())
            assert measure(CPU, batch, 1) is None
    assert asked == []
    assert measure(CPU, [1024], 1) is not None
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    "copies",
    [
        [1 << 20, 16] * 10,
        [16] * 3 + [16, 1 << 20] * 10,  # the first steps copy more often
        [16] * 10 + [1 << 20] * 10,
        [16] * 90 + [10 << 20],  # once in ten steps
    ],
)
def test_a_batch_has_the_sizes_of_a_typical_step(copies, monkeypatch):
    monkeypatch.setattr(pinning, "_ms", lambda run: (run(), 1.0)[1])
    found = measure(CPU, copies, 10)
    assert found.pin_ms == pytest.approx(1.0 if len(copies) < 91 else 0.1, rel=0.01)


def test_a_batch_has_its_own_tensor_sizes():
    assert sample([4096, 1, 64]) == [4096, 16, 64]  # in elements of 16 bytes
    assert sample([MOST_BYTES - 16, 4096, 4096]) == [MOST_BYTES - 16, 16]


def test_copies_for_a_loaders_thread_are_small_enough_for_one_thread(monkeypatch):
    copied, copy = [], Tensor.copy_
    monkeypatch.setattr(
        Tensor, "copy_", lambda self, of: (copied.append(self.numel()), copy(self, of))[1]
    )
    locked = [torch.zeros(1 << 20, dtype=torch.uint8), torch.zeros(16, dtype=torch.uint8)]
    with TemporaryFile() as file:
        file.write(bytes([1]) * (1 << 20) + bytes([2]) * 16)
        file.flush()
        pinning._by_one_thread_ms(locked, file.fileno())
    assert max(copied) < 32_768  # at::internal::GRAIN_SIZE
    assert locked[0].eq(1).all()  # all of it was copied
    assert locked[1].eq(2).all()


@pytest.mark.usefixtures("no_gpu")
def test_a_failing_measurement_returns_none(monkeypatch):
    def fails(_self):
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(Tensor, "pin_memory", fails)
    assert measure(CPU, [1 << 20], 1) is None


@needs_cuda
def test_on_a_gpu_the_measurement_frees_its_memory():
    measure(CUDA, [1 << 24] * 4, 2)
    before = torch.cuda.memory_reserved(CUDA), torch.cuda.memory_allocated(CUDA)
    found = measure(CUDA, [1 << 24] * 4, 2)
    assert (torch.cuda.memory_reserved(CUDA), torch.cuda.memory_allocated(CUDA)) == before
    assert found.copy_ms > 0
    assert found.thread_pin_ms > 0
