"""How much memory there is, and how to tell that there was not enough."""

import os
from itertools import accumulate
from pathlib import Path

import torch

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED", "allocate memory", "shared memory")
"""What torch, CUDA's libraries and the kernel say; no two of them raise the same class."""


def available_host_bytes() -> int:
    """Return how many bytes of memory the host, or this container, can still give."""
    return min(_host_left(), _container_left())


def is_out_of_memory(error: BaseException) -> bool:
    """Tell a lack of memory, on the device or the host, from every other error."""
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
    """Return the least that this process's group, and each around it, leaves."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    return min(map(_group_left, accumulate(path.split("/"), Path.joinpath, initial=cgroup)))


def _group_left(cgroup: Path) -> int:
    """Return the bytes under the limit, file cache that the kernel would drop among them."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        statistics = (cgroup / "memory.stat").read_text()
    except (OSError, ValueError):  # no such controller, or the limit is "max"
        return _host_left()
    return limit - used + _inactive_file(statistics)


def _inactive_file(statistics: str) -> int:
    """Return the bytes of file cache not used lately: they count as used, but make way."""
    for line in statistics.splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0
