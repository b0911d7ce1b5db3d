"""Statistics for the folds: pure functions. None means "not measured"."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from math import exp, floor, fsum, isfinite, log
from operator import itemgetter
from typing import TypeVar

from .protocol.records import replace
from .protocol.training import Step

T = TypeVar("T", int, float)
WARMUP_STEPS = 5
"""Least steps after a start, a change or a pause that are left out of results. Caches and the
allocator warm up in them. They also use up prefetched batches, which mask a loader's rate."""


def percentiles(
    counted: Iterable[tuple[float, int]], qs: Sequence[float] = (50, 95)
) -> tuple[float | None, ...]:
    """Interpolate linearly (definition 7 of Hyndman and Fan). Raises ValueError if not finite."""
    ordered = sorted(counted)
    if not all(map(isfinite, map(itemgetter(0), ordered))):
        raise ValueError("a percentile needs finite values")
    if not ordered:
        return (None,) * len(qs)
    ends = list(accumulate(map(itemgetter(1), ordered)))
    return tuple(_at(ordered, ends, q / 100 * (ends[-1] - 1)) for q in qs)


def mean(values: Iterable[float | None], counts: Iterable[float] = repeat(1)) -> float | None:
    """Leave out None, NaN and infinity. `counts` says how many times each value occurs."""
    total = weight = 0.0
    for value, n in zip(values, counts, strict=False):  # the default counts are endless
        if value is not None and isfinite(value):
            total += value * n
            weight += n
    return total / weight if weight else None


def total(values: Iterable[T | None]) -> T | None:
    """None if a value was not measured."""
    known = list(values)
    return None if None in known else sum(filter(None, known))  # zeros add nothing


def geometric(values: Iterable[float | None]) -> float | None:
    """None without values, or if one was not measured."""
    known = list(values)
    if not known or None in known:
        return None
    logs = [log(value) for value in known if value]
    return exp(fsum(logs) / len(logs)) if len(logs) == len(known) else 0.0


class Means:
    """Weighted means of values by name; each mean has the weight of its measured values."""

    __slots__ = ("_sums",)

    def __init__(self) -> None:
        self._sums = defaultdict[str, list[float]](lambda: [0.0, 0.0])  # total, weight

    def add(self, values: Mapping[str, float | None], weight: float = 1.0) -> None:
        """Leave out values that are None or not finite."""
        for name, value in values.items():
            if value is not None and isfinite(value):
                sums = self._sums[name]
                sums[0] += weight * value
                sums[1] += weight

    def values(self) -> dict[str, float]:
        return {name: total / weight for name, (total, weight) in self._sums.items() if weight}


def without(step: Step, left_out: int) -> Step | None:
    count = step.count - left_out
    if count <= 0:
        return None
    if not left_out:
        return step
    samples, tokens = (
        None if of_all is None else round(of_all * count / step.count)
        for of_all in (step.samples, step.tokens)
    )
    return replace(step, samples=samples, tokens=tokens, count=count)


def warm(step: Step) -> Step | None:
    """None if no step came after the warm-up."""
    return without(step, step.count - step.warm)


def _at(ordered: Sequence[tuple[float, int]], ends: Sequence[int], position: float) -> float:
    index = floor(position)
    below = ordered[bisect_right(ends, index)][0]
    above = ordered[bisect_right(ends, min(index + 1, ends[-1] - 1))][0]
    share = position - index
    value = below * (1 - share) + above * share
    # rounding must not move the result past its neighbours
    return min(max(value, below), above)
