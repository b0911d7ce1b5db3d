"""CPU time and memory of the training processes and of gpudash itself.

The CPU time of a process that began since the previous reading counts from 0. The last CPU time of
a process that ended is in its parent's time of reaped children. Whose it was is not said there: it
counts for the loader if loader workers have come or gone since the previous reading, or their own
parent is one.
"""

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping

from gpudash.protocol.readings import HostReading
from gpudash.telemetry.core_wait import CoreWait
from gpudash.telemetry.procfs import Children, Process, Usage, children_lookup, tree, usage_of
from gpudash.telemetry.roles import Role, Roles

OWN_SPAN_S = 5.0
"""gpudash's own CPU time is a mean over this long: drawing comes in bursts."""
NOTHING = Usage(0.0, 0.0, 0.0, 0)
PARTS: tuple[Role, ...] = ("training", "loader", "other")
"""The roles of processes whose time and memory are the training's."""
APART: tuple[Role, ...] = ("loader", "rank")
"""Roles of processes that start none of another role."""


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
        # CPU time of ended processes that no parent had reaped when read, by who reaps them
        self._ended_s = defaultdict[Role, float](float)
        self.roles = Roles(pid)

    def read(self, children: Children | None = None, ranks: Collection[int] = ()) -> HostReading:
        """Leave values out that need a previous reading, and all once the tree has ended.

        `ranks` are all training processes: one may have started another one.
        """
        now_s = self._clock()
        found = self._find(children or children_lookup())
        roles = self.roles.of(found, ranks)
        rss_mib = sum(usage.rss_mib for one, usage in found.items() if roles[one] != "rank")
        cpu_pct: dict[Role, float] = {}
        if rss_mib and self._read_s is not None and now_s > self._read_s:
            elapsed_s = now_s - self._read_s
            used_s = self._used_s(found, roles)
            cpu_pct = {role: 100 * used_s[role] / elapsed_s for role in PARTS}
        self._read_s, self._before = now_s, found
        own = next(iter(usage_of(os.getpid()).values()), None) if self._reads_own else None
        told, training = (cpu_pct, PARTS[:2]) if self.roles.are_told else ({}, PARTS)
        waiting = (process.pid for process in found if roles[process] in training)
        values = {
            "cpu_pct": sum(cpu_pct.values()) if cpu_pct else None,
            "loader_cpu_pct": told.get("loader"),
            "other_cpu_pct": told.get("other"),
            "worker_rss_mib": rss_mib or None,
            "core_wait_pct": self._core_wait.read(waiting, now_s),
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

    def _used_s(
        self, found: Mapping[Process, Usage], roles: Mapping[Process, Role]
    ) -> Mapping[Role, float]:
        # whose server has forked it, a loader worker is reaped by another process of the training
        reapers = {one.pid: role if role in APART else "training" for one, role in roles.items()}
        used_s, reaped_s, ended_s = (defaultdict[Role, float](float) for _ in range(3))
        for process, usage in found.items():
            before = self._before.get(process, NOTHING)
            used_s[roles[process]] += usage.own_s - before.own_s
            reaped_s[reapers[process.pid]] += usage.reaped_s - before.reaped_s
        for process in self._before.keys() - found.keys():
            gone = self._before[process]
            ended_s[reapers.get(gone.parent, "training")] += gone.own_s + gone.reaped_s
        for reaper in reaped_s:
            left_s = reaped_s[reaper] - ended_s[reaper] - self._ended_s[reaper]
            # a parent read just before it reaped has that time at the next reading, or never
            self._ended_s[reaper] = min(max(-left_s, 0.0), ended_s[reaper])
            used_s[reaper if reaper in APART else self.roles.of_ended] += max(left_s, 0.0)
        return used_s

    def _own_cpu_pct(self, now_s: float) -> float | None:
        # the kernel counts in ticks of 10 ms, which is 5 % of the time between two readings
        self._own_cpu.append((now_s, time.process_time()))
        while len(self._own_cpu) > 1 and now_s - self._own_cpu[1][0] >= OWN_SPAN_S:
            self._own_cpu.popleft()
        (then_s, before), (_, after) = self._own_cpu[0], self._own_cpu[-1]
        return 100 * (after - before) / (now_s - then_s) if now_s > then_s else None
