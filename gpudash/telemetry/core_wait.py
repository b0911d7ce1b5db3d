"""Core wait: the share of core time that the training's threads needed and did not get.

docs/concepts/measuring.md explains the figure.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from gpudash.telemetry.procfs import GONE, text, threads
from workloads.standard_levers import usable_cores


class Counts(NamedTuple):
    """Run and wait time of a thread since it began, in nanoseconds."""

    ran: int
    waited: int


BORN = Counts(0, 0)


class CoreWait:
    """Reads all threads of some processes; each reading covers the time since the one before."""

    def __init__(self) -> None:
        self._read_s: float | None = None
        self._before: dict[str, Counts] = {}
        self.cores: int | None = None
        """How many cores these processes may use together; None once all have ended."""

    def read(self, pids: Iterable[int], now_s: float) -> float | None:
        """None the first time."""
        found = [thread for pid in pids for thread in _threads(pid)]
        now = {thread: counts for thread in found for counts in _counts(thread)}
        self.cores = _cores_of(found)
        before, self._before = self._before, now
        then_s, self._read_s = self._read_s, now_s
        if then_s is None or now_s <= then_s or self.cores is None:
            return None
        return core_wait_pct(before, now, now_s - then_s, self.cores)


def core_wait_pct(
    before: Mapping[str, Counts], now: Mapping[str, Counts], elapsed_s: float, cores: int
) -> float | None:
    """Return the percentage of the core time asked for that was not granted.

    At most the time of all cores counts as asked for, as threads wait for each other even on an
    idle machine, and at least that of one core. None where the kernel does not count.
    """
    if not any(counts.ran for counts in now.values()):  # a kernel that does not count says 0
        return None
    changes = [(counts, before.get(thread, BORN)) for thread, counts in now.items()]
    ran_s = sum(max(counts.ran - then.ran, 0) for counts, then in changes) / 1e9
    waited_s = sum(max(counts.waited - then.waited, 0) for counts, then in changes) / 1e9
    asked_s = min(ran_s + waited_s, cores * elapsed_s)
    return 100 * max(asked_s - ran_s, 0.0) / max(asked_s, elapsed_s)


def _cores_of(found: Iterable[str]) -> int | None:
    """Count the cores that the threads may use together; each may be bound to its own."""
    allowed: set[int] = set()
    for thread in found:
        with suppress(*GONE):
            allowed |= os.sched_getaffinity(int(thread.rpartition("/")[2]))
    return usable_cores(allowed) if allowed else None


def _threads(pid: int) -> list[str]:
    with suppress(*GONE):
        return threads(pid)
    return []


def _counts(thread: str) -> Iterator[Counts]:
    with suppress(*GONE):  # the thread has ended, or the kernel has no such file
        ran, waited, _ = map(int, text(f"{thread}/schedstat").split())
        yield Counts(ran, waited)
