"""The allocator's statistics; on a GPU they are compared with torch's."""

from unittest.mock import Mock

import pytest
import torch
from torch import nn

from gpudash.forecast import Need, forecast
from gpudash.instrument.device import (
    MIB,
    UNKNOWN,
    DeviceMemory,
    capacity_mib,
    device_memory,
    give_back,
    reset_peak,
)
from tests.workloads.trainings import needs_cuda

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)

STATISTICS = {
    "reserved_bytes": {"all": {"current": 30 * MIB, "peak": 40 * MIB}},
    "allocated_bytes": {"all": {"current": 10 * MIB, "peak": 20 * MIB}},
}
COUNTED = STATISTICS | {"num_alloc_retries": 1, "num_device_alloc": 5, "num_device_free": 3}
FOUND = {"reserved_mib": 30.0, "allocated_mib": 10.0, "peak_mib": 20.0}
COUNTS = {"alloc_retries": 1, "device_allocs": 5, "device_frees": 3}


def test_device_memory_is_unknown_without_a_gpu():
    assert device_memory(CPU) == UNKNOWN
    assert capacity_mib(CPU) is None
    reset_peak(CPU)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (STATISTICS, DeviceMemory(**FOUND)),
        (COUNTED, DeviceMemory(**FOUND, counts=COUNTS)),
        ({}, UNKNOWN),
        (RuntimeError("the allocator does not yet support getDeviceStats"), UNKNOWN),
    ],
    ids=["statistics", "counts", "none", "no support"],
)
def test_the_allocators_statistics_are_in_mib(
    answer: object, found: DeviceMemory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", Mock(side_effect=[answer] * 2))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (70 * MIB, 200 * MIB))
    assert device_memory(GPU) == found
    if found != UNKNOWN:
        assert capacity_mib(GPU) == 100.0  # reserved and free memory


@needs_cuda
def test_statistics_match_torch_and_the_peak_can_be_reset():
    held = torch.empty(64 * MIB, dtype=torch.uint8, device=GPU)
    torch.empty(256 * MIB, dtype=torch.uint8, device=GPU)
    found = device_memory(GPU)
    assert found.allocated_mib == torch.cuda.memory_allocated(GPU) / MIB
    assert found.reserved_mib == torch.cuda.memory_reserved(GPU) / MIB
    assert found.peak_mib >= held.numel() / MIB + 256
    reset_peak(GPU)
    again = device_memory(GPU)
    assert again.peak_mib == found.allocated_mib


@needs_cuda
def test_a_cache_that_is_emptied_asks_the_driver_again():
    give_back(GPU)
    before = device_memory(GPU).counts
    for _ in range(3):
        torch.empty(256 * MIB, dtype=torch.uint8, device=GPU)
        give_back(GPU)
    after = device_memory(GPU).counts
    assert {name: after[name] - count for name, count in before.items()} == {
        "alloc_retries": 0,
        "device_allocs": 3,
        "device_frees": 3,
    }


@needs_cuda
def test_a_batchs_memory_is_predicted_within_5_percent_from_two_smaller_ones():
    layers = [nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()) for _ in range(8)]
    model = nn.Sequential(*layers).to(GPU)
    optimizer = torch.optim.AdamW(model.parameters())

    def need(batch_size: int) -> Need:
        give_back(GPU)
        reset_peak(GPU)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(batch_size, 16, 64, 64, device=GPU)).square().mean().backward()
            optimizer.step()
        found = device_memory(GPU)
        return Need(found.peak_mib, found.reserved_mib)

    need(8)  # the optimizer's state, workspaces
    expected = forecast({size: need(size) for size in (32, 64)}, capacity_mib(GPU))
    assert expected.tensors.at(256) == pytest.approx(need(256).tensors_mib, rel=0.05)
