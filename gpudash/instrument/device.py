"""The training device: its name, its software, and torch's caching allocator on it."""

import platform
import re
from contextlib import suppress
from pathlib import Path

import torch

from ..protocol.records import Struct
from ..protocol.training import Device

DRIVER = Path("/proc/driver/nvidia/version")
"""The version file of NVIDIA's kernel module."""


def describe_device(device: torch.device) -> Device:
    if device.type == "cpu":
        threads = torch.get_num_threads()
        name = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
        return Device(kind="cpu", name=name)
    properties = torch.cuda.get_device_properties(device)
    return Device(
        kind="cuda",
        name=properties.name,
        uuid=nvml_uuid(properties.name, properties.uuid),
        mem_total_mib=properties.total_memory / 2**20,
    )


def nvml_uuid(name: str, uuid: object) -> str:
    return f"{'MIG' if 'MIG' in name else 'GPU'}-{uuid}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # in torch
    if cudnn:
        found["cudnn"] = str(cudnn)
    with suppress(OSError):  # without a driver there is no such file
        found |= driver_version(DRIVER.read_text())
    return found


def driver_version(text: str) -> dict[str, str]:
    found = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return {"driver": found[1]} if found else {}


MIB = 2**20
REQUESTS = {
    "alloc_retries": "num_alloc_retries",
    "device_allocs": "num_device_alloc",
    "device_frees": "num_device_free",
}
"""Metrics by torch's names of what is counted: one of a step is many, as the allocator keeps a
cache."""


class DeviceMemory(Struct, frozen=True, kw_only=True):
    """The allocator at one moment."""

    reserved_mib: float | None = None
    """Held by the allocator, in use or not."""
    allocated_mib: float | None = None
    """Held by tensors."""
    peak_mib: float | None = None
    """Most held by tensors at once since the last reset."""
    counts: dict[str, int] = {}  # noqa: RUF012  # nobody changes it
    """By `REQUESTS`: what the allocator has asked of the driver so far, as far as it counts it."""

    def values(self) -> dict[str, float]:
        found = {
            "mem_reserved_mib": self.reserved_mib,
            "mem_allocated_mib": self.allocated_mib,
            "mem_peak_mib": self.peak_mib,
        }
        return {name: mib for name, mib in found.items() if mib is not None}


UNKNOWN = DeviceMemory()


def device_memory(device: torch.device) -> DeviceMemory:
    if device.type != "cuda":
        return UNKNOWN
    try:
        # `memory_stats` would also flatten and sort some hundred numbers
        found = torch.cuda.memory_stats_as_nested_dict(device)
        reserved, allocated = found["reserved_bytes"]["all"], found["allocated_bytes"]["all"]
    except (RuntimeError, KeyError):  # an allocator of the user's own, or CUDA is not initialised
        return UNKNOWN
    return DeviceMemory(
        reserved_mib=reserved["current"] / MIB,
        allocated_mib=allocated["current"] / MIB,
        peak_mib=allocated["peak"] / MIB,
        counts={name: found[key] for name, key in REQUESTS.items() if key in found},
    )


def gpus_in_use() -> int:
    devices = (torch.device("cuda", index) for index in range(torch.cuda.device_count()))
    return max(sum(bool(device_memory(one).reserved_mib) for one in devices), 1)


def reset_peak(device: torch.device) -> None:
    """Do not use it in a user's script, which may read the peak itself."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def give_back(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()


def capacity_mib(device: torch.device) -> float | None:
    reserved_mib = device_memory(device).reserved_mib
    if reserved_mib is None:
        return None
    free, _total = torch.cuda.mem_get_info(device)
    return free / MIB + reserved_mib
