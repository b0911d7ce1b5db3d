import pytest
import torch

from gpudash.instrument.device import driver_version, gpus_in_use, nvml_uuid

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
