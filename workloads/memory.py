"""Available host memory, and recognising out-of-memory errors."""

import os
from itertools import accumulate
from pathlib import Path

import torch

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED", "allocate memory", "shared memory")
"""Texts in the errors of torch, CUDA's libraries and the kernel, whose classes all differ."""


def available_host_bytes() -> int:
    """Return the available memory of the host or of this container, in bytes."""
    return min(_host_left(), _container_left())


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on the device or the host."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return any(text in str(error) for text in OUT_OF_MEMORY)


def _host_left() -> int:
    with Path("/proc/meminfo").open(encoding="ascii") as meminfo:
        for line in meminfo:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _container_left(cgroup: Path = CGROUP, own: Path = OWN_GROUP) -> int:
    """Return the bytes left by this process's cgroup, or by a stricter parent group."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    return min(map(_group_left, accumulate(path.split("/"), Path.joinpath, initial=cgroup)))


def _group_left(cgroup: Path) -> int:
    """Return the bytes left below the group's limit, counting file cache as free."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        statistics = (cgroup / "memory.stat").read_text()
    except (OSError, ValueError):  # no such controller, or the limit is "max"
        return _host_left()
    return limit - used + _inactive_file(statistics)


def _inactive_file(statistics: str) -> int:
    """Return the bytes of inactive file cache: they count as used, but can be dropped."""
    for line in statistics.splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0
