"""CPU time and memory of the training processes and of gpudash itself.

The training processes are the worker and all its descendants. Loader workers come and go at any
moment. The CPU time of a process that began since the previous reading counts from 0. The last CPU
time of a process that ended is in its parent's time of reaped children.
"""

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import psutil

from gpudash.protocol import HostReading
from gpudash.telemetry.core_wait import CoreWait
from gpudash.telemetry.procfs import GONE, text, threads

MIB = 1024 * 1024
OWN_SPAN_S = 5.0
"""gpudash's own CPU time is a mean over this long: drawing comes in bursts."""
LISTS_CHILDREN = Path("/proc/thread-self/children").exists()
"""Whether the kernel lists a process's children. Else the tree is found among all processes of the
machine, which costs more."""

Children: TypeAlias = Callable[[int], Iterable[int]]
"""Returns the children of a process."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / MIB


class Process(NamedTuple):
    """Identity of a process: a later one with the same pid began at another moment."""

    pid: int
    began: int  # clock ticks since the machine's start


class _Usage(NamedTuple):
    """CPU time and memory that a process has used so far."""

    own_s: float  # CPU seconds
    reaped_s: float  # CPU seconds of descendants that ended and were waited for
    rss_mib: float  # 0 for a zombie


NOTHING = _Usage(0.0, 0.0, 0.0)


class HostReader:
    """Reads one worker's process tree; each reading covers the time since the previous one.

    The CPU time of this process itself is a mean over `OWN_SPAN_S`.
    """

    def __init__(
        self, pid: int, clock: Callable[[], float] = time.monotonic, *, reads_own: bool = True
    ) -> None:
        """`clock` gives seconds and stamps the readings. `reads_own`: read this process too."""
        self._clock = clock
        self._reads_own = reads_own
        self.pid = pid
        """The worker's process id."""
        self._root: Process | None = None
        self._own_cpu: deque[tuple[float, float]] = deque()  # (time, CPU seconds until then)
        self._read_s: float | None = None
        self._before: dict[Process, _Usage] = {}
        self._core_wait = CoreWait()
        self._ended_s = 0.0  # CPU time of ended processes that no parent had reaped when read

    def read(self, children: Children | None = None) -> HostReading:
        """Return the tree's CPU time, memory and core wait; they are absent once all have ended.

        The CPU time of the worker's descendants, its loader workers, is also a value of its own.

        Values that need a previous reading are absent at first. Readers that read one after the
        other may share the result of `children_lookup()`.
        """
        now_s = self._clock()
        found = self._find(children or children_lookup())
        rss_mib = sum(usage.rss_mib for usage in found.values())
        cpu_pct = loader_cpu_pct = None
        if rss_mib and self._read_s is not None and now_s > self._read_s:
            used_s, own_s = self._used_s(found), self._used_by_root_s(found)
            cpu_pct = 100 * used_s / (now_s - self._read_s)
            loader_cpu_pct = 100 * max(used_s - own_s, 0.0) / (now_s - self._read_s)
        self._read_s, self._before = now_s, found
        own = next(iter(_read(os.getpid()).values()), None) if self._reads_own else None
        values = {
            "cpu_pct": cpu_pct,
            "loader_cpu_pct": loader_cpu_pct,
            "worker_rss_mib": rss_mib or None,
            "core_wait_pct": self._core_wait.read((process.pid for process in found), now_s),
            "own_cpu_pct": self._own_cpu_pct(now_s) if self._reads_own else None,
            "own_rss_mib": own.rss_mib if own else None,
        }
        known: dict[str, float | str] = {
            k: value for k, value in values.items() if value is not None
        }
        return HostReading(at_s=now_s, pid=self.pid, values=known)

    def _find(self, children: Children) -> dict[Process, _Usage]:
        """Return the usage of the tree, and of processes that were in it at the previous reading.

        A listing may miss a process while another one ends.
        """
        found: dict[Process, _Usage] = {}
        root = next(iter(_read(self.pid)), None)
        self._root = self._root or root
        if root is not None and root == self._root:  # not a later process with the same pid
            for pid in _tree(self.pid, children):
                found |= _read(pid)
        for process in self._before.keys() - found.keys():
            found |= {one: usage for one, usage in _read(process.pid).items() if one == process}
        return found

    def _used_s(self, found: dict[Process, _Usage]) -> float:
        """Return the CPU seconds used since the previous reading."""
        own_s = reaped_s = 0.0
        for process, usage in found.items():
            before = self._before.get(process, NOTHING)
            own_s += usage.own_s - before.own_s
            reaped_s += usage.reaped_s - before.reaped_s
        gone = [self._before[process] for process in self._before.keys() - found.keys()]
        ended_s = sum(usage.own_s + usage.reaped_s for usage in gone)
        left_s = reaped_s - ended_s - self._ended_s
        # a parent read just before it reaped has that time at the next reading, or never
        self._ended_s = min(max(-left_s, 0.0), ended_s)
        return own_s + max(left_s, 0.0)

    def _used_by_root_s(self, found: dict[Process, _Usage]) -> float:
        """Return the CPU seconds that the worker itself used since the previous reading."""
        if self._root is None or self._root not in found:
            return 0.0
        return found[self._root].own_s - self._before.get(self._root, NOTHING).own_s

    def _own_cpu_pct(self, now_s: float) -> float | None:
        # the kernel counts in ticks of 10 ms, which is 5 % of the time between two readings
        self._own_cpu.append((now_s, time.process_time()))
        while len(self._own_cpu) > 1 and now_s - self._own_cpu[1][0] >= OWN_SPAN_S:
            self._own_cpu.popleft()
        (then_s, before), (_, after) = self._own_cpu[0], self._own_cpu[-1]
        return 100 * (after - before) / (now_s - then_s) if now_s > then_s else None


def children_lookup() -> Children:
    """Return a function from a process to its children.

    Where the kernel does not list them, it answers from one pass over all processes.
    """
    if LISTS_CHILDREN:
        return _children
    found = defaultdict(list)
    for pid in psutil.pids():
        with suppress(*GONE):
            found[int(_cells(pid)[1])].append(pid)
    return lambda pid: found.get(pid, ())


def cpu_s_of(pid: int) -> tuple[Process, int, float]:
    """Return the process with this pid, its parent and its CPU seconds. Raises one of `GONE`."""
    cells = _cells(pid)
    user, system = map(int, cells[11:13])
    return Process(pid, int(cells[19])), int(cells[1]), (user + system) * _TICK_S


def _tree(pid: int, children: Children) -> list[int]:
    """Return the process and its descendants, parents first."""
    found = [pid]
    for parent in found:  # the list grows during the loop
        found += children(parent)
    return found


def _children(pid: int) -> Iterator[int]:
    """Yield the processes that each thread of the process has forked."""
    with suppress(*GONE):
        for thread in threads(pid):
            with suppress(*GONE):  # the thread may have ended
                yield from map(int, text(f"{thread}/children").split())


def _read(pid: int) -> dict[Process, _Usage]:
    """Return the process with this pid and its usage; empty when it has ended."""
    try:
        cells = _cells(pid)
    except GONE:
        return {}
    user, system, reaped_user, reaped_system = map(int, cells[11:15])
    usage = _Usage(
        own_s=(user + system) * _TICK_S,
        reaped_s=(reaped_user + reaped_system) * _TICK_S,
        rss_mib=int(cells[21]) * _PAGE_MIB,
    )
    return {Process(pid, int(cells[19])): usage}


def _cells(pid: int) -> list[bytes]:
    """Return the fields of `/proc/PID/stat` from the state on. Raises one of `GONE`."""
    return text(f"{pid}/stat").rpartition(b")")[2].split()  # the name may contain `)` and spaces
