"""Reading processes in /proc: their threads and children, and what they have used so far."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import psutil

PROC = "/proc"
GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
"""Errors of /proc for a process that has ended, or that it hides (other users', with `hidepid`)."""
MIB = 1024 * 1024
LISTS_CHILDREN = Path("/proc/thread-self/children").exists()
"""Whether the kernel lists a process's children. Else the tree is found among all processes of the
machine, which costs more."""

FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's name for the machine's own pid namespace; each container has another one."""

Children: TypeAlias = Callable[[int], Iterable[int]]
"""Returns the children of a process."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / MIB


class Process(NamedTuple):
    """Identity of a process: a later one with the same pid began at another moment."""

    pid: int
    began: int  # clock ticks since the machine's start


class Usage(NamedTuple):
    """CPU time and memory that a process has used so far."""

    own_s: float  # CPU seconds
    reaped_s: float  # CPU seconds of descendants that ended and were waited for
    rss_mib: float  # 0 for a zombie
    parent: int


def are_of_machine() -> bool:
    """Whether the pids here are the machine's, as they are outside of containers."""
    with suppress(OSError):
        return os.readlink(f"{PROC}/self/ns/pid") == FIRST_NAMESPACE  # noqa: PTH115  # no file
    return False


def children_lookup() -> Children:
    """Where the kernel lists no children, answer from one pass over all processes."""
    if LISTS_CHILDREN:
        return _children
    found = defaultdict(list)
    for pid in psutil.pids():
        with suppress(*GONE):
            found[int(_cells(pid)[1])].append(pid)
    return lambda pid: found.get(pid, ())


def cpu_s_of(pid: int) -> tuple[Process, int, float]:
    """Return the process, its parent and its CPU seconds. Raises one of `GONE`."""
    cells = _cells(pid)
    user, system = map(int, cells[11:13])
    return Process(pid, int(cells[19])), int(cells[1]), (user + system) * _TICK_S


def tree(pid: int, children: Children) -> list[int]:
    found = [pid]
    for parent in found:  # the list grows during the loop
        found += children(parent)
    return found


def _children(pid: int) -> Iterator[int]:
    with suppress(*GONE):
        for thread in threads(pid):
            with suppress(*GONE):  # the thread may have ended
                yield from map(int, text(f"{thread}/children").split())


def usage_of(pid: int) -> dict[Process, Usage]:
    try:
        # statm is exact: in stat the kernel leaves out what each core has not added yet
        cells, pages = _cells(pid), int(text(f"{pid}/statm").split()[1])
    except GONE:
        return {}
    user, system, reaped_user, reaped_system = map(int, cells[11:15])
    usage = Usage(
        own_s=(user + system) * _TICK_S,
        reaped_s=(reaped_user + reaped_system) * _TICK_S,
        rss_mib=pages * _PAGE_MIB,
        parent=int(cells[1]),
    )
    return {Process(pid, int(cells[19])): usage}


def number_within(pid: int) -> int:
    """Return the number by which a process is known within its container."""
    with suppress(*GONE):
        for line in text(f"{pid}/status").splitlines():
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
    return pid


def _cells(pid: int) -> list[bytes]:
    """Return `/proc/PID/stat` from the state on. Raises one of `GONE`."""
    return text(f"{pid}/stat").rpartition(b")")[2].split()  # the name may contain `)` and spaces


def threads(pid: int) -> list[str]:
    """List folders in /proc. Raises one of `GONE`."""
    folder = f"{pid}/task"
    names = os.listdir(f"{PROC}/{folder}")  # noqa: PTH208  # a Path costs as much again
    return [f"{folder}/{name}" for name in names]


def text(path: str) -> bytes:
    """Read unbuffered, as a worker may have many threads."""
    fd = os.open(f"{PROC}/{path}", os.O_RDONLY)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)
