"""The training device: its name, its software, torch's caching allocator, the cost of pinning."""

import mmap
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from ..protocol.inspections import Pinning
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


class DeviceMemory(Struct, frozen=True, kw_only=True):
    """The allocator at one moment."""

    reserved_mib: float | None = None
    """Held by the allocator, in use or not."""
    allocated_mib: float | None = None
    """Held by tensors."""
    peak_mib: float | None = None
    """Most held by tensors at once since the last reset."""

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


MOST_BYTES = 64 << 20
"""Of a larger batch a part stands for all. Together with its copies this exceeds the caches of most
CPUs, as in a training, where what is pinned comes from memory."""
FREE_TIMES = 4
"""Free GPU memory needed, in batches. If a request failed, torch would first release memory that it
caches for the script."""
REPEATS = 3
"""Runs. The best counts, and the slowest says how much they vary. The first one to pin also locks
memory, so it only can be the best."""
SERIAL = 1 << 14
"""Elements. torch copies fewer than twice as many on one thread, like a loader's own thread."""
WIDE = torch.complex128
"""The largest element type."""


def measure(device: torch.device, copies: Sequence[int], steps: int) -> Pinning | None:
    """Return what a step's copies would cost; `copies` has the bytes of each copy in `steps` steps.

    Takes 0.1 s of the training's time, once in a process for batches of the same sizes. None if
    there is too little memory. Page-locked memory stays in an older torch.
    """
    sizes = tuple(sample(sorted(copies, reverse=True)[::steps]))  # steps may differ in their copies
    times = sum(copies) / steps / sum(sizes)
    try:
        runs_ms = _measured(device, sizes)
    except (OSError, RuntimeError):
        return None
    pin_ms, thread_pin_ms, copy_ms = (min(each) * times for each in runs_ms)
    slower = max(max(each[1:]) / min(each) for each in runs_ms)
    return Pinning(pin_ms=pin_ms, thread_pin_ms=thread_pin_ms, copy_ms=copy_ms, slower=slower)


def sample(copies: Sequence[int]) -> list[int]:
    sizes, left = [], MOST_BYTES
    for size in copies:
        if left > 0:
            sizes.append(-(-min(size, left) // WIDE.itemsize) * WIDE.itemsize)
        left -= size
    return sizes


@lru_cache(maxsize=16)
def _measured(device: torch.device, sizes: tuple[int, ...]) -> tuple[list[float], ...]:
    """Return the ms of each run: pinning on the training thread, on a loader's, and the copy."""
    free_bytes, _ = torch.cuda.mem_get_info(device)
    if FREE_TIMES * sum(sizes) > free_bytes:
        raise RuntimeError("it would leave the script too little memory")
    try:
        return _runs_ms(device, sizes)
    finally:
        _give_back()


def _runs_ms(device: torch.device, sizes: tuple[int, ...]) -> tuple[list[float], ...]:
    batch = [torch.ones(size, dtype=torch.uint8, device="cpu") for size in sizes]
    locked: list[Tensor] = []
    main_ms, thread_ms = [], []
    file = os.memfd_create("gpudash")
    try:
        os.ftruncate(file, sum(sizes))
        _shared(file).fill_(1)
        for _ in range(REPEATS):
            locked.clear()  # reused by the next run
            main_ms.append(_ms(lambda: locked.extend(each.pin_memory() for each in batch)))
            thread_ms.append(_by_one_thread_ms(locked, file))
    finally:
        os.close(file)
    return main_ms, thread_ms, _to_device_ms(locked, device)


def _by_one_thread_ms(locked: list[Tensor], file: int) -> float:
    batch = torch.split(_shared(file), [each.numel() for each in locked])
    pairs = [
        pair
        for target, source in zip(locked, batch, strict=True)
        for pair in zip(_pieces(target), _pieces(source), strict=True)
    ]
    return _ms(lambda: [to.copy_(of) for to, of in pairs])


def _shared(file: int) -> Tensor:
    return torch.frombuffer(mmap.mmap(file, 0), dtype=torch.uint8)


def _pieces(memory: Tensor) -> tuple[Tensor, ...]:
    return torch.split(memory.view(WIDE), SERIAL)


def _to_device_ms(locked: list[Tensor], device: torch.device) -> list[float]:
    pool = torch.cuda.MemPool()
    with torch.cuda.device(device), torch.cuda.use_mem_pool(pool):
        held = [torch.empty(len(each), dtype=torch.uint8, device=device) for each in locked]
    try:  # sync: blocking copies, once a profile, between two steps
        return [
            _ms(lambda: [to.copy_(of) for to, of in zip(held, locked, strict=True)])
            for _ in range(REPEATS)
        ]
    finally:
        held.clear()  # before their pool, which then returns the memory to the driver


def _ms(run: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run()
    return (time.perf_counter() - began_s) * 1e3


def _give_back() -> None:
    accelerator = getattr(torch, "accelerator", None)  # both are missing in an older torch
    empty = getattr(accelerator, "empty_host_cache", None)
    if empty is not None:
        with suppress(RuntimeError):
            empty()
