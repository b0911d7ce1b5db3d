"""What torch's caching allocator holds on the GPU that is trained on."""

import msgspec
import torch

MIB = 2**20


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The allocator at one moment."""

    reserved_mib: float | None = None
    """Held, in use or not."""
    allocated_mib: float | None = None
    """In tensors."""
    peak_mib: float | None = None
    """The most in tensors at once, since the statistics were reset."""


UNKNOWN = DeviceMemory()


def device_memory(device: torch.device) -> DeviceMemory:
    """Read the allocator: on the host alone, without waiting for the device."""
    if device.type != "cuda":
        return UNKNOWN
    try:
        # `memory_stats` would flatten and sort some hundred numbers besides
        found = torch.cuda.memory_stats_as_nested_dict(device)
        reserved, allocated = found["reserved_bytes"]["all"], found["allocated_bytes"]["all"]
    except (RuntimeError, KeyError):  # an allocator of the user's own; CUDA not begun
        return UNKNOWN
    return DeviceMemory(
        reserved_mib=reserved["current"] / MIB,
        allocated_mib=allocated["current"] / MIB,
        peak_mib=allocated["peak"] / MIB,
    )


def reset_peak(device: torch.device) -> None:
    """Have the peak be that of what follows; not in a user's script, which may read it itself."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def give_back(device: torch.device) -> None:
    """Have the allocator hold what tensors need alone: what it held before was for others."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def capacity_mib(device: torch.device) -> float | None:
    """Return what this process may hold: what it does, and what nobody does."""
    reserved_mib = device_memory(device).reserved_mib
    if reserved_mib is None:
        return None
    free, _total = torch.cuda.mem_get_info(device)
    return free / MIB + reserved_mib
