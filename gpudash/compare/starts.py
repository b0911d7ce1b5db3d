"""Estimate a change from several starts of a training: each start is one replicate.

Each start of a process has a pace of its own, as where its memory lies and how fast its host
launches. It slows A and B unequally, and lasts as long as the process, so more pairs do not average
it out. On a host that launches slowly four starts of one A/B gave +4.2 [1.1, 7.4], +8.4 [5.2,
11.7], -1.8 [-3.2, -0.4] and +4.9 [1.5, 8.4] %. So the pairs of a start count together as one.
"""

from collections.abc import Hashable, Iterable, Sequence
from math import fsum, log1p, sqrt
from statistics import median, stdev
from typing import NamedTuple

from msgspec.structs import replace

from gpudash.compare.paired_t import (
    CHECK_CONFIDENCE,
    Estimate,
    around,
    check_clause,
    effect,
    student,
    student_t,
)
from gpudash.format import percent
from gpudash.protocol.session import ComparisonShown

STARTS = 4
"""Starts to ask for. Two give an interval about five times as wide, eight one half as wide."""
FEWEST_STARTS = 2
"""Fewer have no interval."""
HOST_LIMITS = 0.85
"""Share of a step from which on the pace of the host, which each start has of its own, shows."""

_LEAST = -1 + 1e-15
"""Least change that has a logarithm."""


def over_starts(starts: Sequence[Estimate], confidence: float = 0.95) -> Estimate:
    """Count all starts alike: the spread between them is the larger part."""
    found = student([log1p(one.change) for one in starts], confidence)
    return replace(found, pairs=sum(one.pairs for one in starts))


def check_of_starts(checks: Iterable[Estimate | None]) -> Estimate | None:
    """Pool the neighbouring blocks: with a check for each start, one would fail by chance."""
    known = [_LogMean.of(check) for check in checks if check is not None]
    if not known:
        return None
    neighbours = sum(one.number for one in known)
    degrees = neighbours - len(known)
    centre = fsum(one.number * one.centre for one in known) / neighbours
    variance = fsum((one.number - 1) * one.variance for one in known) / degrees
    half = student_t(degrees, CHECK_CONFIDENCE) * sqrt(variance / neighbours)
    return around(centre, half, neighbours, CHECK_CONFIDENCE)


class _LogMean(NamedTuple):
    """Number, mean and variance of the log ratios that an estimate was made of."""

    number: int
    centre: float
    variance: float

    @classmethod
    def of(cls, found: Estimate) -> "_LogMean":
        assert found.low is not None
        centre = log1p(found.change)
        error = (centre - log1p(max(found.low, _LEAST))) / student_t(
            found.pairs - 1, found.confidence
        )
        return cls(found.pairs, centre, found.pairs * error**2)


def differ(starts: Sequence[Estimate]) -> bool:
    """Tell whether they spread more than the interval of one; of two with one pace 5 % do."""
    within = [one.half_width for one in starts if one.half_width is not None]
    if len(starts) < FEWEST_STARTS or not within:
        return False
    return stdev(one.change for one in starts) > median(within)


def verdict(
    name: str, starts: Sequence[Estimate], checks: Iterable[Estimate | None], early: str = ""
) -> str:
    """Word what two starts or more show; `early` says why there are fewer than planned."""
    found = over_starts(starts)
    many = f"{len(starts)} starts, {found.pairs} pairs"
    clauses = [effect(name, found), many, check_clause(check_of_starts(checks))]
    wide = "; two starts give a wide interval, four one about a fifth as wide"
    apart = "; the starts differ by more than the interval of one: one alone says little here"
    return (
        ", ".join(clauses) + early + wide * (len(starts) == FEWEST_STARTS) + apart * differ(starts)
    )


class KnownStarts:
    """What the starts of one run have found, by question: a training may be started again."""

    def __init__(self) -> None:
        self._found: dict[Hashable, dict[int, Estimate]] = {}

    def add(self, asked: Hashable, start: int, found: Estimate) -> tuple[Estimate, ...]:
        starts = self._found.setdefault(asked, {})
        starts[start] = found
        return tuple(starts.values())


def host_share(shown: ComparisonShown) -> float | None:
    sides = zip(shown.of("host_ms"), shown.of("steps_per_s"), strict=True)
    known = [ms * rate / 1e3 for ms, rate in sides if ms is not None and rate is not None]
    return max(known, default=None)


def of_one_start(share: float | None, starts: Sequence[Estimate] = ()) -> str:
    """Warn if the next start may well differ: others did, or the host needs most of a step."""
    if differ(starts):
        why = f"{len(starts)} starts differ by more than the interval of one"
    elif share is not None and share > HOST_LIMITS:
        needs = percent(100 * min(share, 1.0))
        why = f"the host needs {needs} of a step, and its pace differs from start to start"
    else:
        return ""
    return f"; of this start alone: {why} (gpudash ab --starts {STARTS} covers that)"
