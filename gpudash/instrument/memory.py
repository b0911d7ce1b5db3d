"""Reads torch's caching allocator on the training GPU."""

import msgspec
import torch

MIB = 2**20


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The allocator at one moment."""

    reserved_mib: float | None = None
    """Held by the allocator, in use or not."""
    allocated_mib: float | None = None
    """Held by tensors."""
    peak_mib: float | None = None
    """Most held by tensors at once since the last reset."""

    def values(self) -> dict[str, float]:
        """Return what is known by metric."""
        found = {
            "mem_reserved_mib": self.reserved_mib,
            "mem_allocated_mib": self.allocated_mib,
            "mem_peak_mib": self.peak_mib,
        }
        return {name: mib for name, mib in found.items() if mib is not None}


UNKNOWN = DeviceMemory()


def device_memory(device: torch.device) -> DeviceMemory:
    """Return the allocator's statistics; all None on a CPU. It does not wait for the device."""
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
    )


def reset_peak(device: torch.device) -> None:
    """Reset the peak. Do not use it in a user's script, which may read the peak itself."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def give_back(device: torch.device) -> None:
    """Return unused memory of the allocator to the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def capacity_mib(device: torch.device) -> float | None:
    """Return the MiB that this process may hold: what it holds already, and free memory."""
    reserved_mib = device_memory(device).reserved_mib
    if reserved_mib is None:
        return None
    free, _total = torch.cuda.mem_get_info(device)
    return free / MIB + reserved_mib
