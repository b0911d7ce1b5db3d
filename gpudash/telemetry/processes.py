"""CPU time and memory of the training processes and of gpudash itself.

The CPU time of a process that began since the previous reading counts from 0. The last CPU time of
a process that ended is in its parent's time of reaped children.
"""

import os
import time
from collections import deque
from collections.abc import Callable

from gpudash.protocol.readings import HostReading
from gpudash.telemetry.core_wait import CoreWait
from gpudash.telemetry.procfs import Children, Process, Usage, children_lookup, tree, usage_of

OWN_SPAN_S = 5.0
"""gpudash's own CPU time is a mean over this long: drawing comes in bursts."""
NOTHING = Usage(0.0, 0.0, 0.0)


class HostReader:
    """Reads one worker's process tree; each reading covers the time since the previous one."""

    def __init__(
        self, pid: int, clock: Callable[[], float] = time.monotonic, *, reads_own: bool = True
    ) -> None:
        """Read this process too if `reads_own`."""
        self._clock = clock
        self._reads_own = reads_own
        self.pid = pid
        """The worker's process id."""
        self._root: Process | None = None
        self._own_cpu: deque[tuple[float, float]] = deque()  # (time, CPU seconds until then)
        self._read_s: float | None = None
        self._before: dict[Process, Usage] = {}
        self._core_wait = CoreWait()
        self._ended_s = 0.0  # CPU time of ended processes that no parent had reaped when read

    def read(self, children: Children | None = None) -> HostReading:
        """Leave values out that need a previous reading, and all once the tree has ended."""
        now_s = self._clock()
        found = self._find(children or children_lookup())
        rss_mib = sum(usage.rss_mib for usage in found.values())
        cpu_pct = loader_cpu_pct = None
        if rss_mib and self._read_s is not None and now_s > self._read_s:
            used_s, own_s = self._used_s(found), self._used_by_root_s(found)
            cpu_pct = 100 * used_s / (now_s - self._read_s)
            loader_cpu_pct = 100 * max(used_s - own_s, 0.0) / (now_s - self._read_s)
        self._read_s, self._before = now_s, found
        own = next(iter(usage_of(os.getpid()).values()), None) if self._reads_own else None
        values = {
            "cpu_pct": cpu_pct,
            "loader_cpu_pct": loader_cpu_pct,
            "worker_rss_mib": rss_mib or None,
            "core_wait_pct": self._core_wait.read((process.pid for process in found), now_s),
            "usable_cores": self._core_wait.cores,
            "own_cpu_pct": self._own_cpu_pct(now_s) if self._reads_own else None,
            "own_rss_mib": own.rss_mib if own else None,
        }
        known: dict[str, float | str] = {
            k: value for k, value in values.items() if value is not None
        }
        return HostReading(at_s=now_s, pid=self.pid, values=known)

    def _find(self, children: Children) -> dict[Process, Usage]:
        """Look up earlier processes again: a listing may miss one while another one ends."""
        found: dict[Process, Usage] = {}
        root = next(iter(usage_of(self.pid)), None)
        self._root = self._root or root
        if root is not None and root == self._root:  # not a later process with the same pid
            for pid in tree(self.pid, children):
                found |= usage_of(pid)
        for process in self._before.keys() - found.keys():
            found |= {one: usage for one, usage in usage_of(process.pid).items() if one == process}
        return found

    def _used_s(self, found: dict[Process, Usage]) -> float:
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

    def _used_by_root_s(self, found: dict[Process, Usage]) -> float:
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
