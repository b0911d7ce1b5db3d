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
    driver_version,
    give_back,
    gpus_in_use,
    nvml_uuid,
    reset_peak,
)
from tests.workloads.trainings import CPU, CUDA, needs_cuda

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
    assert device_memory(CUDA) == found
    if found != UNKNOWN:
        assert capacity_mib(CUDA) == 100.0  # reserved and free memory


@needs_cuda
def test_statistics_match_torch_and_the_peak_can_be_reset():
    held = torch.empty(64 * MIB, dtype=torch.uint8, device=CUDA)
    torch.empty(256 * MIB, dtype=torch.uint8, device=CUDA)
    found = device_memory(CUDA)
    assert found.allocated_mib == torch.cuda.memory_allocated(CUDA) / MIB
    assert found.reserved_mib == torch.cuda.memory_reserved(CUDA) / MIB
    assert found.peak_mib >= held.numel() / MIB + 256
    reset_peak(CUDA)
    assert device_memory(CUDA).peak_mib == found.allocated_mib


@needs_cuda
def test_a_cache_that_is_emptied_asks_the_driver_again():
    give_back(CUDA)
    before = device_memory(CUDA).counts
    for _ in range(3):
        torch.empty(256 * MIB, dtype=torch.uint8, device=CUDA)
        give_back(CUDA)
    after = device_memory(CUDA).counts
    assert {name: after[name] - count for name, count in before.items()} == {
        "alloc_retries": 0,
        "device_allocs": 3,
        "device_frees": 3,
    }


@needs_cuda
def test_a_batchs_memory_is_predicted_within_5_percent_from_two_smaller_ones():
    layers = [nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()) for _ in range(8)]
    model = nn.Sequential(*layers).to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters())

    def need(batch_size: int) -> Need:
        give_back(CUDA)
        reset_peak(CUDA)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(batch_size, 16, 64, 64, device=CUDA)).square().mean().backward()
            optimizer.step()
        found = device_memory(CUDA)
        return Need(found.peak_mib, found.reserved_mib)

    need(8)  # the optimizer's state, workspaces
    expected = forecast({size: need(size) for size in (32, 64)}, capacity_mib(CUDA))
    assert expected.tensors.at(256) == pytest.approx(need(256).tensors_mib, rel=0.05)


# ── which devices there are ───────────────────────────────────────────────────────────────


UUID = "5fcb9b1c-0c2e-4d6f-9a1b-0d5c3b2a1f00"


@pytest.mark.parametrize(
    ("name", "prefix"), [("NVIDIA H200", "GPU"), ("NVIDIA H200 MIG 1g.18gb", "MIG")]
)
def test_gpus_and_mig_instances_have_nvmls_uuid(name: str, prefix: str):
    assert nvml_uuid(name, UUID) == f"{prefix}-{UUID}"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\nGCC 12.3.0\n",
            {"driver": "535.104.05"},
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
            {"driver": "580.65.06"},
        ),
        ("GCC version:  gcc version 12.3.0\n", {}),
        ("", {}),
    ],
)
def test_the_drivers_version_is_read_from_its_version_file(said, found):
    assert driver_version(said) == found


@pytest.mark.parametrize(
    ("held", "gpus"),
    [
        ((2**20, 0), 1),
        ((2**20, 2**20), 2),  # `nn.DataParallel`, or a model that is spread over both
        ((0, 2**20), 1),
        ((), 1),  # an allocator that does not tell
    ],
)
def test_a_process_trains_on_the_gpus_on_which_it_has_memory(held, gpus, monkeypatch):
    def stats(device):
        if not held:
            raise RuntimeError("no statistics")
        sizes = {"current": held[device.index], "peak": held[device.index]}
        return {"reserved_bytes": {"all": sizes}, "allocated_bytes": {"all": sizes}}

    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(held) or 2)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats)
    assert gpus_in_use() == gpus
