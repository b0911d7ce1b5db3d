"""Estimate a change from several starts of a training: each start is one replicate.

Each start of a process has a pace of its own: where its memory lies, on which cores its threads
run, how fast its host launches. It does not cancel in a pair, because it slows A and B unequally,
and it lasts as long as the process, so more pairs do not average it out. On a host that launches
slowly four starts of one A/B gave +4.2 [1.1, 7.4], +8.4 [5.2, 11.7], -1.8 [-3.2, -0.4] and +4.9
[1.5, 8.4] %, each with a passed A/A check. So the interval of one start says nothing of the next
one, and the pairs of a start count together as one: the mean of their log ratios. The interval is
Student's, over these means. Pooling the pairs of all starts would repeat the error.

`tests/compare/test_starts.py` simulates the figures named here. No clock, no I/O, no numpy.
"""

from collections.abc import Iterable, Sequence
from math import expm1, fsum, inf, log1p, sqrt
from statistics import median
from typing import NamedTuple

from gpudash.compare.paired_t import (
    CHECK_CONFIDENCE,
    Estimate,
    check_clause,
    effect,
    student_t,
)
from gpudash.format import percent

STARTS = 4
"""Starts to ask for. Two give an interval about five times as wide, eight one half as wide."""
FEWEST_STARTS = 2
"""Fewer have no interval."""
HOST_LIMITS = 0.85
"""Share of a step from which on the pace of the host, which each start has of its own, shows."""

_LARGEST = 700.0
"""Logarithm up to which a change is a float; two starts may have a longer interval."""
_LEAST = -1 + 1e-15
"""Least change that has a logarithm."""


def over_starts(starts: Sequence[Estimate], confidence: float = 0.95) -> Estimate:
    """Return the change over the starts, with Student's interval; needs a start.

    All starts count alike, whatever their pairs: the spread between them is the larger part.
    """
    logs = [log1p(one.change) for one in starts]
    centre = fsum(logs) / len(logs)
    pairs = sum(one.pairs for one in starts)
    if len(logs) < FEWEST_STARTS:
        return Estimate(
            pairs=pairs, change=expm1(centre), low=None, high=None, confidence=confidence
        )
    variance = fsum((value - centre) ** 2 for value in logs) / (len(logs) - 1)
    half = student_t(len(logs) - 1, confidence) * sqrt(variance / len(logs))
    return _around(centre, half, pairs, confidence)


def check_of_starts(checks: Iterable[Estimate | None]) -> Estimate | None:
    """Return the A/A check of all starts together; None if none has one.

    A check of its own in each start would fail by chance the more often, the more starts there are.
    What a switch leaves behind is no matter of the start, so their neighbouring blocks are pooled.
    """
    known = [_LogMean.of(check) for check in checks if check is not None]
    if not known:
        return None
    neighbours = sum(one.number for one in known)
    degrees = neighbours - len(known)
    centre = fsum(one.number * one.centre for one in known) / neighbours
    variance = fsum((one.number - 1) * one.variance for one in known) / degrees
    half = student_t(degrees, CHECK_CONFIDENCE) * sqrt(variance / neighbours)
    return _around(centre, half, neighbours, CHECK_CONFIDENCE)


class _LogMean(NamedTuple):
    """Number, mean and variance of the log ratios that an estimate was made of."""

    number: int
    centre: float
    variance: float

    @classmethod
    def of(cls, found: Estimate) -> "_LogMean":
        """Return them of an estimate with Student's interval."""
        assert found.low is not None
        centre = log1p(found.change)
        error = (centre - log1p(max(found.low, _LEAST))) / student_t(found.pairs - 1, found.confidence)
        return cls(found.pairs, centre, found.pairs * error**2)


def differ(starts: Sequence[Estimate]) -> bool:
    """Return whether the starts lie further apart than the interval of one is long.

    Four starts of one pace do so in about one of a hundred cases.
    """
    lengths = [2 * one.half_width for one in starts if one.half_width is not None]
    changes = [one.change for one in starts]
    return bool(lengths) and max(changes) - min(changes) > median(lengths)


def verdict(
    name: str, starts: Sequence[Estimate], checks: Iterable[Estimate | None], early: str = ""
) -> str:
    """Return a sentence on the effect of the setting `name`, over the starts; it needs two.

    `early` is a clause on why there are fewer starts than planned.
    """
    found = over_starts(starts)
    many = f"{len(starts)} starts, {found.pairs} pairs"
    clauses = [effect(name, found), many, check_clause(check_of_starts(checks))]
    wide = "; two starts give a wide interval, four one about a fifth as wide"
    apart = "; the starts differ by more than the interval of one: one alone says little here"
    return (
        ", ".join(clauses) + early + wide * (len(starts) == FEWEST_STARTS) + apart * differ(starts)
    )


def of_one_start(host_share: float | None) -> str:
    """Return a clause that a verdict is of one start alone, where the host's pace decides.

    `host_share` is the share of a step that the host needs; empty if it is small or not known.
    """
    if host_share is None or host_share <= HOST_LIMITS:
        return ""
    share = percent(100 * min(host_share, 1.0))
    return (
        f"; of this start alone: the host needs {share} of a step, and its pace differs "
        f"from start to start (--starts {STARTS} covers that)"
    )


def _around(centre: float, half: float, pairs: int, confidence: float) -> Estimate:
    """Return the estimate of a mean log ratio, with an interval of this half length."""
    return Estimate(
        pairs=pairs,
        change=expm1(centre),
        low=expm1(centre - half),
        high=expm1(centre + half) if centre + half < _LARGEST else inf,
        confidence=confidence,
    )
