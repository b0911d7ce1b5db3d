"""How long the collectives of a step run, and for how long the computation waits for them.

A wait ends when the collective that it is for has ended. What follows in the same phase, such as
the copy of gathered shards to their places, is no wait for other processes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

Span: TypeAlias = tuple[float, float]
"""Begin and end, in ms from any moment."""


class CollectiveTimes(NamedTuple):
    """Times of the collectives of one step."""

    ms: float
    """While at least one runs: collectives beside each other count once, gaps do not count."""
    exposed_ms: float
    """The part of `ms` in which the computation waits for them."""


def collective_times(collectives: Sequence[Span], phases: Iterable[Span]) -> CollectiveTimes:
    """Return the times; `phases` are those in which the computation may wait."""
    ends = sorted(end for _, end in collectives)
    waits = []
    for begin, end in phases:
        ended = bisect_right(ends, end)
        if ended and ends[ended - 1] > begin:
            waits.append((begin, ends[ended - 1]))
    ms, waits_ms = _covered(collectives), _covered(waits)
    return CollectiveTimes(ms, ms + waits_ms - _covered([*collectives, *waits]))


def _covered(spans: Iterable[Span]) -> float:
    """Return the time that the spans cover, once where several do."""
    covered, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered
