"""CPU time of processes outside of the training, read rarely: a pass takes 20 µs for each."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple

import psutil

from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.readings import Job, OtherJobs
from gpudash.telemetry.procfs import GONE, Process, cpu_s_of, text

PERIOD_S = 2.0
"""Least time between two readings, …"""
MOST_COST = 0.01
"""… and the share of it that they may take: a machine may have thousands of processes."""
LINGERS_S = 5.0
"""How long the reading goes on after the training lacked cores: other jobs come and go."""
MOST_NAMED = 2
LEAST_CORES = 0.1
"""A process that uses less is not named."""
INTERPRETERS = ("python", "pypy", "bash", "sh", "perl", "ruby", "node", "java")


class Used(NamedTuple):
    """A process, its parent, and its CPU seconds so far."""

    parent: int
    cpu_s: float


class OtherJobsReader:
    """Reads the other jobs from time to time; each reading covers the time since the one before."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: dict[Process, Used] | None = None  # None: the next reading is the first
        self._read_s = self._due_s = 0.0
        self._lacked_s = float("-inf")  # when the training lacked cores last

    def read(self, training: Iterable[int], core_wait_pct: float | None) -> OtherJobs | None:
        """None if it is not time yet, the first time, and while the training has its cores."""
        now_s = self._clock()
        if (core_wait_pct or 0.0) >= CORE_WAIT_WARNS_PCT:
            self._lacked_s = now_s
        if now_s - self._lacked_s >= LINGERS_S:
            self._before = None
            return None
        if self._before is not None and now_s < self._due_s:
            return None
        found = _read_all()
        self._due_s = now_s + max(PERIOD_S, (self._clock() - now_s) / MOST_COST)
        before, self._before = self._before, found
        then_s, self._read_s = self._read_s, now_s
        if before is None or now_s <= then_s:
            return None
        used = used_cores(before, found, {os.getpid(), *training}, now_s - then_s)
        named = sorted(used.items(), key=lambda one: -one[1])[:MOST_NAMED]
        return OtherJobs(
            at_s=now_s,
            used_cores=sum(used.values()),
            cores=os.cpu_count() or 1,
            busiest=tuple(
                Job(pid=process.pid, name=name, cores=cores)
                for process, cores in named
                if cores >= LEAST_CORES and (name := name_of(process.pid))
            ),
        )


def used_cores(
    before: Mapping[Process, Used],
    now: Mapping[Process, Used],
    ours: Collection[int],
    elapsed_s: float,
) -> dict[Process, float]:
    parents = {process.pid: one.parent for process, one in now.items()}

    def is_ours(pid: int) -> bool:
        seen = set()
        while pid in parents and pid not in ours and pid not in seen:
            seen.add(pid)  # a pid may be used again during the pass
            pid = parents[pid]
        return pid in ours

    born = Used(0, 0.0)
    return {
        process: max(one.cpu_s - before.get(process, born).cpu_s, 0.0) / elapsed_s
        for process, one in now.items()
        if not is_ours(process.pid)
    }


def program(command: Iterable[str]) -> str:
    """Leave out arguments, which may be secret, except the script or module that is run."""
    first, *others = command
    name = PurePath(first).name
    if not name.startswith(INTERPRETERS):
        return name
    rest = iter(others)
    for word in rest:
        if word == "-m":
            return next(rest, name)
        if word == "-c":
            break
        if not word.startswith("-"):
            return PurePath(word).name
    return name


def _read_all() -> dict[Process, Used]:
    found = {}
    for pid in psutil.pids():
        with suppress(*GONE):
            process, parent, cpu_s = cpu_s_of(pid)
            found[process] = Used(parent, cpu_s)
    return found


def name_of(pid: int) -> str:
    with suppress(*GONE):
        words = text(f"{pid}/cmdline").decode(errors="replace").split("\0")
        if any(words):  # a thread of the kernel has none
            return program(filter(None, words))
        return text(f"{pid}/comm").decode(errors="replace").strip()
    return ""
