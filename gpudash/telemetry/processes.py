"""What the training processes, and gpudash itself, use of the CPU and of memory.

The training processes are the worker and all its descendants.

Loader workers come and go at any moment. Whoever was born since the reading before counts from
0; what one that ended had still used is in the time of the children that its parent has reaped.
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
"""Our own CPU time is averaged over so long: drawing comes in bursts."""
LISTS_CHILDREN = Path("/proc/thread-self/children").exists()
"""Else (a kernel built without) the tree is found among all processes of the machine: dearer."""

Children: TypeAlias = Callable[[int], Iterable[int]]
"""Returns the children of a process."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / MIB


class _Process(NamedTuple):
    """Which process; a later one with its number began at another moment."""

    pid: int
    began: int  # clock ticks since the machine's start


class _Usage(NamedTuple):
    """What a process has used so far."""

    own_s: float  # CPU seconds
    reaped_s: float  # those of its children that ended, and of theirs
    rss_mib: float  # 0 for a zombie


NOTHING = _Usage(0.0, 0.0, 0.0)


class HostReader:
    """Reads one worker's process tree; each reading covers the time since the one before.

    What this process itself takes is a mean over `OWN_SPAN_S`.
    """

    def __init__(
        self, pid: int, clock: Callable[[], float] = time.monotonic, *, reads_own: bool = True
    ) -> None:
        """`clock` gives seconds; samples carry its time. `reads_own`: this process too."""
        self._clock = clock
        self._reads_own = reads_own
        self._pid = pid
        self._root: _Process | None = None
        self._own_cpu: deque[tuple[float, float]] = deque()  # moments, and CPU seconds until then
        self._read_s: float | None = None
        self._before: dict[_Process, _Usage] = {}
        self._core_wait = CoreWait()
        self._ended_s = 0.0  # of those that ended, what no parent had been told of when read

    def read(self, children: Children | None = None) -> HostReading:
        """Return what they use and wait for; absent once all are gone.

        What is of the time since the reading before is absent at first. Readers that read one
        after the other may share a `family()`.
        """
        now_s = self._clock()
        found = self._find(children or family())
        rss_mib = sum(usage.rss_mib for usage in found.values())
        cpu_pct = None
        if rss_mib and self._read_s is not None and now_s > self._read_s:
            cpu_pct = 100 * self._used_s(found) / (now_s - self._read_s)
        self._read_s, self._before = now_s, found
        own = next(iter(_read(os.getpid()).values()), None) if self._reads_own else None
        values = {
            "cpu_pct": cpu_pct,
            "worker_rss_mib": rss_mib or None,
            "core_wait_pct": self._core_wait.read((process.pid for process in found), now_s),
            "own_cpu_pct": self._own_cpu_pct(now_s) if self._reads_own else None,
            "own_rss_mib": own.rss_mib if own else None,
        }
        known: dict[str, float | str] = {
            k: value for k, value in values.items() if value is not None
        }
        return HostReading(at_s=now_s, pid=self._pid, values=known)

    def _find(self, children: Children) -> dict[_Process, _Usage]:
        """Read the tree, and who was in it before: a listing may miss one while another ends."""
        found: dict[_Process, _Usage] = {}
        root = next(iter(_read(self._pid)), None)
        self._root = self._root or root
        if root is not None and root == self._root:  # not a later process with its number
            for pid in _tree(self._pid, children):
                found |= _read(pid)
        for process in self._before.keys() - found.keys():
            found |= {one: usage for one, usage in _read(process.pid).items() if one == process}
        return found

    def _used_s(self, found: dict[_Process, _Usage]) -> float:
        """Return the CPU seconds used since the reading before."""
        own_s = reaped_s = 0.0
        for process, usage in found.items():
            before = self._before.get(process, NOTHING)
            own_s += usage.own_s - before.own_s
            reaped_s += usage.reaped_s - before.reaped_s
        gone = [self._before[process] for process in self._before.keys() - found.keys()]
        ended_s = sum(usage.own_s + usage.reaped_s for usage in gone)
        left_s = reaped_s - ended_s - self._ended_s
        # a parent that was read just before it reaped has that time at the next reading, or never
        self._ended_s = min(max(-left_s, 0.0), ended_s)
        return own_s + max(left_s, 0.0)

    def _own_cpu_pct(self, now_s: float) -> float | None:
        # the kernel's times come in ticks of 10 ms: 5 % of the time between two readings
        self._own_cpu.append((now_s, time.process_time()))
        while len(self._own_cpu) > 1 and now_s - self._own_cpu[1][0] >= OWN_SPAN_S:
            self._own_cpu.popleft()
        (then_s, before), (_, after) = self._own_cpu[0], self._own_cpu[-1]
        return 100 * (after - before) / (now_s - then_s) if now_s > then_s else None


def family() -> Children:
    """Return what tells children; where the kernel does not, as all of the machine are now."""
    if LISTS_CHILDREN:
        return _children
    found = defaultdict(list)
    for pid in psutil.pids():
        with suppress(*GONE):
            found[int(_cells(pid)[1])].append(pid)
    return lambda pid: found.get(pid, ())


def _tree(pid: int, children: Children) -> list[int]:
    """Return the process and its descendants, as far as they are there, parents first."""
    found = [pid]
    for parent in found:  # it grows on the way
        found += children(parent)
    return found


def _children(pid: int) -> Iterator[int]:
    """Yield what each thread of the process has forked."""
    with suppress(*GONE):
        for thread in threads(pid):
            with suppress(*GONE):  # this thread
                yield from map(int, text(f"{thread}/children").split())


def _read(pid: int) -> dict[_Process, _Usage]:
    """Return the process of this number and what it has used; nothing when it is gone."""
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
    return {_Process(pid, int(cells[19])): usage}


def _cells(pid: int) -> list[bytes]:
    """Return what is told of a process, from its state on. Raises one of `GONE`."""
    return text(f"{pid}/stat").rpartition(b")")[2].split()  # the name before may hold anything
