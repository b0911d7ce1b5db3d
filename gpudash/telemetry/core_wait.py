"""How much of the core time that the training asked for it did not get.

Linux counts of each thread how long it ran, and how long it was ready to run and waited for a
core. docs/concepts/measuring.md says what is made of that.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from gpudash.telemetry.procfs import GONE, text, threads


class Counts(NamedTuple):
    """Of a thread since its birth, in nanoseconds."""

    ran: int
    waited: int


BORN = Counts(0, 0)


class CoreWait:
    """Reads all threads of some processes; each reading covers the time since the one before."""

    def __init__(self) -> None:
        self._read_s: float | None = None
        self._before: dict[str, Counts] = {}

    def read(self, pids: Iterable[int], now_s: float) -> float | None:
        """Return what `core_wait_pct` does; None the first time."""
        now = {thread: counts for pid in pids for thread, counts in _counts(pid)}
        before, self._before = self._before, now
        then_s, self._read_s = self._read_s, now_s
        if then_s is None or now_s <= then_s:
            return None
        # those of this thread: the training, which we start, may have bound each of its own to one
        return core_wait_pct(before, now, now_s - then_s, len(os.sched_getaffinity(0)))


def core_wait_pct(
    before: Mapping[str, Counts], now: Mapping[str, Counts], elapsed_s: float, cores: int
) -> float | None:
    """Return the percentage of the asked core time that was not given; None where none is counted.

    Asked for is what the threads ran and waited, at most all cores: threads that are more than
    those would have waited for each other alone. A training that asks for less than a core is
    measured against one core: if it seldom needs one, waiting costs it little.
    """
    if not any(counts.ran for counts in now.values()):  # a kernel that does not count says 0
        return None
    changes = [(counts, before.get(thread, BORN)) for thread, counts in now.items()]
    ran_s = sum(max(counts.ran - then.ran, 0) for counts, then in changes) / 1e9
    waited_s = sum(max(counts.waited - then.waited, 0) for counts, then in changes) / 1e9
    asked_s = min(ran_s + waited_s, cores * elapsed_s)
    return 100 * max(asked_s - ran_s, 0.0) / max(asked_s, elapsed_s)


def _counts(pid: int) -> Iterator[tuple[str, Counts]]:
    with suppress(*GONE):
        for thread in threads(pid):
            with suppress(*GONE):  # this thread, or the file, which not every kernel has
                ran, waited, _ = map(int, text(f"{thread}/schedstat").split())
                yield thread, Counts(ran, waited)
