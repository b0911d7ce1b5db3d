"""Play the activities of a training step as a schedule: a max-plus recurrence.

A step is a few activities on resources. Each begins once what it needs has ended and its resource
is free. Played for some steps, the schedule has a period: the duration of a step.
The same recurrence is behind dPRO (Hu et al., MLSys 2022) and Daydream (Zhu et al., ATC 2020),
which play each operator; here an activity is a phase.
"""

from collections.abc import Sequence
from typing import NamedTuple

ROUNDS = 8
"""Batches that each loader worker makes while a schedule is played, …"""
STEPS = 32
"""… and the least number of steps; the last quarter is timed."""


class Work(NamedTuple):
    """One activity of each step."""

    name: str
    on: str
    """The resource that is busy with it."""
    ms: float
    after: tuple[str, ...] = ()
    """Activities of the same step that end before it begins."""
    ends_after: tuple[str, ...] = ()
    """Activities of the same step before whose end it does not end: a kernel and its launch."""
    behind: tuple[tuple[str, int], ...] = ()
    """Activities of so many steps before that end before it begins: prefetching, running ahead."""
    servers: int = 1
    """How many steps' activities the resource does at a time, such as loader workers."""


def period_ms(works: Sequence[Work]) -> float:
    """Return the steady duration of a step in ms.

    An activity stands behind those of the same step that it needs.
    """
    order = {work.name: index for index, work in enumerate(works)}
    needs = [
        (
            work.ms,
            tuple(order[name] for name in work.after),
            tuple(order[name] for name in work.ends_after),
            tuple((order[name], steps_ago) for name, steps_ago in work.behind),
            work.on,
        )
        for work in works
    ]
    free = {work.on: [0.0] * work.servers for work in works}
    workers = max(work.servers for work in works)
    timed = -(-STEPS // (4 * workers)) * workers  # whole rounds: workers end in bursts
    steps = max(STEPS, ROUNDS * workers)
    ends: list[list[float]] = []
    for step in range(steps + 1):
        now: list[float] = []
        for ms, after, ends_after, behind, resource in needs:
            servers = free[resource]
            begins = min(servers)
            slot = servers.index(begins)
            for index in after:
                begins = max(begins, now[index])
            for index, steps_ago in behind:
                if steps_ago <= step:
                    begins = max(begins, ends[step - steps_ago][index])
            end = begins + ms
            for index in ends_after:
                end = max(end, now[index])
            servers[slot] = end
            now.append(end)
        ends.append(now)
    return (max(ends[-1]) - max(ends[-1 - timed])) / timed
