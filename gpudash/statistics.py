"""The few statistics that the folds need, as pure functions. None means "not measured"."""

from collections.abc import Iterable, Sequence
from math import floor, isfinite


def percentiles(values: Iterable[float], qs: Sequence[float]) -> tuple[float | None, ...]:
    """Return several percentiles (0 to 100) of the same values; each None of no values.

    The q-th percentile of n sorted values lies at position q/100·(n-1), counted from 0;
    between two values it is interpolated linearly (definition 7 of Hyndman and Fan).
    Raises ValueError for a value that is not finite or a `q` out of range.
    """
    ordered = sorted(values)
    if not all(map(isfinite, ordered)):
        raise ValueError("a percentile needs finite values")
    if not all(0 <= q <= 100 for q in qs):
        raise ValueError("a percentile lies between 0 and 100")
    if not ordered:
        return (None,) * len(qs)
    return tuple(_at(ordered, q / 100 * (len(ordered) - 1)) for q in qs)


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that were measured: neither None nor NaN nor infinite."""
    measured = [value for value in values if value is not None and isfinite(value)]
    return sum(measured) / len(measured) if measured else None


def _at(ordered: Sequence[float], position: float) -> float:
    below = floor(position)
    above = min(below + 1, len(ordered) - 1)
    share = position - below
    value = ordered[below] * (1 - share) + ordered[above] * share
    # rounding must not carry the result past its neighbours
    return min(max(value, ordered[below]), ordered[above])
