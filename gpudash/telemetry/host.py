"""CPU time and memory of the training processes, and of gpudash itself.

The training processes are the worker and all its descendants.

Loader workers come and go at any moment, so a process that vanishes between two calls is
the normal case here and simply stops counting.
"""

import os
import time
from collections import deque
from collections.abc import Callable

import psutil

from gpudash.records import HostSample

MIB = 1024 * 1024
RELIST_S = 1.0
"""Listing the tree reads every process of the machine: too dear for every reading."""
OWN_SPAN_S = 5.0
"""Our own CPU time is averaged over so long: drawing comes in bursts."""


class HostReader:
    """Reads one worker's process tree; each reading covers the time since the one before.

    What this process itself takes is a mean over `OWN_SPAN_S`.
    """

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds; samples carry its time."""
        self._clock = clock
        self._root = _process(pid)
        self._own = _process(os.getpid())
        self._own_cpu: deque[tuple[float, float]] = deque()  # moments, and CPU seconds until then
        self._processes: list[psutil.Process] = []
        self._listed_s: float | None = None
        self._read_s: float | None = None
        self._cpu_s: dict[psutil.Process, float] = {}

    def read(self) -> HostSample:
        """CPU percent (of one core, None at first) and resident MiB; None once all are gone."""
        now_s = self._clock()
        if self._listed_s is None or now_s - self._listed_s >= RELIST_S:
            self._processes, self._listed_s = _tree(self._root), now_s
        found = {process: usage for process in self._processes if (usage := _usage(process))}
        own = _usage(self._own) if self._own else None
        cpu_pct = self._cpu_pct(now_s, {process: cpu_s for process, (cpu_s, _) in found.items()})
        self._read_s = now_s
        return HostSample(
            at_s=now_s,
            cpu_pct=cpu_pct,
            worker_rss_mib=sum(rss_mib for _, rss_mib in found.values()) if found else None,
            own_cpu_pct=self._own_cpu_pct(now_s),
            own_rss_mib=own[1] if own else None,
        )

    def _own_cpu_pct(self, now_s: float) -> float | None:
        # psutil's times come in ticks of 10 ms: 5 % of the time between two readings
        self._own_cpu.append((now_s, time.process_time()))
        while len(self._own_cpu) > 1 and now_s - self._own_cpu[1][0] >= OWN_SPAN_S:
            self._own_cpu.popleft()
        (then_s, before), (_, after) = self._own_cpu[0], self._own_cpu[-1]
        return 100 * (after - before) / (now_s - then_s) if now_s > then_s else None

    def _cpu_pct(self, now_s: float, cpu_s: dict[psutil.Process, float]) -> float | None:
        """Percent of a core since the reading before, of the processes found at both."""
        before_s = self._read_s
        before, self._cpu_s = self._cpu_s, cpu_s
        both = cpu_s.keys() & before.keys()
        if before_s is None or now_s <= before_s or not both:
            return None
        return 100 * sum(cpu_s[each] - before[each] for each in both) / (now_s - before_s)


def _process(pid: int) -> psutil.Process | None:
    """Return this very process, never a later one with its number; None when it is gone."""
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _tree(root: psutil.Process | None) -> list[psutil.Process]:
    """Return the process and all its descendants; nothing when it is gone."""
    try:
        return [root, *root.children(recursive=True)] if root else []
    except psutil.Error:
        return []


def _usage(process: psutil.Process) -> tuple[float, float] | None:
    """CPU seconds and resident MiB so far; None for a process that is gone or a zombie."""
    try:
        times, rss_bytes = process.cpu_times(), process.memory_info().rss
    except psutil.Error:
        return None
    if not rss_bytes:  # only a zombie has no memory
        return None
    return times.user + times.system, rss_bytes / MIB
