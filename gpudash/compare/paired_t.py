"""The statistics of an interleaved comparison: is B faster than A, by how much, how sure.

Blocks of steps under A and B take turns, two to a pair, in random order. What both blocks of
a pair share (drift, clocks, other load) cancels in the ratio of their costs; the interval is
Student's, over the logarithms of those ratios. A cost is any positive time per unit of work:
milliseconds per sample, or per step where both settings have the same batch size.

No clock, no I/O, no numpy: the screen's process imports this. docs/concepts/statistics.md tells the
reasons; the figures named here were simulated by `tests/compare/test_paired_t.py`.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import cos, expm1, fsum, inf, isfinite, log, pi, sin, sqrt, tan
from random import Random
from typing import Literal, TypeAlias

import msgspec

Order: TypeAlias = Literal["AB", "BA"]
"""Which block of a pair came first."""

MIN_PAIRS = 16
"""Pairs before a comparison may stop because it is precise enough.

A variance that looks small early is often just a lucky one, and stopping on it makes the
interval too narrow: from 16 pairs on at least 94 % of the 95 % intervals hold the truth,
whatever the precision asked for; with 8, 10 and 12 pairs it is 93.2, 93.5 and 93.8 %.
"""
CHECK_CONFIDENCE = 0.99
"""Of the A/A check: it fails by chance in one comparison of a hundred."""
MIN_CHECKED = 4
"""Neighbours that an A/A check needs. With two, Student's t at this confidence is 64: whatever
was wrong, the check would pass."""

_NOTHING = 1e-9
"""Relative changes up to this are the arithmetic's rounding."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """How much faster B is than A. All changes are relative: 0.05 is 5 % more throughput."""

    pairs: int
    change: float
    """Throughput of B over that of A, less 1: positive where B is faster."""
    low: float | None
    high: float | None
    """Ends of the confidence interval of `change`; None with fewer than two pairs."""
    confidence: float = 0.95

    @property
    def half_width(self) -> float | None:
        """Half the length of the interval, in the terms of `change`."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2


def estimate(pairs: Sequence[tuple[float, float]], confidence: float = 0.95) -> Estimate:
    """Estimate the change from A to B of pairs (cost of A, cost of B): a paired t interval.

    Raises ValueError for no pairs, a cost that is not positive and finite, and, where there
    is an interval, a confidence not between 0 and 1.
    """
    return _paired_t([_log_ratio(*pair) for pair in pairs], confidence)


def precise_enough(so_far: Estimate, precision: float) -> bool:
    """Tell whether a comparison may stop: its half width is at most `precision` (0.005: ±0.5 %).

    Looks at the width alone, never at where the interval lies: stopping at a significant one
    would find differences where there are none. Never true before `MIN_PAIRS`.
    """
    half = so_far.half_width
    return so_far.pairs >= MIN_PAIRS and half is not None and half <= precision


def same_setting_check(
    pairs: Sequence[tuple[float, float]], orders: Sequence[Order]
) -> Estimate | None:
    """Compare neighbouring blocks of the same setting: the A/A check. None if too few.

    Where a pair follows one of the opposite order (A B, B A), the two blocks in the middle ran
    under one setting, the first of them right after a switch, the second not. Their costs are
    the same unless a switch leaves something behind beyond the steps that were dropped:
    `change` is by about how much more a block right after a switch costs. A trend is taken out
    by the outer two blocks, which ran under one setting too, three blocks apart.
    (Differences with a random sign would average to 0 whatever the data: they check nothing.)
    `pairs` of the result counts such neighbours; each pair is in one of them at most, about
    two of three pairs are. Fewer than `MIN_CHECKED` are None. Raises ValueError for a cost of
    theirs that is not positive and finite, and for more or fewer orders than pairs.
    """
    blocks = [
        (a, b) if order == "AB" else (b, a) for (a, b), order in zip(pairs, orders, strict=True)
    ]
    logs = []
    for first in _opposite_neighbours(orders):
        (outer_first, after_switch), (after_same, outer_last) = blocks[first : first + 2]
        trend = _log_ratio(outer_first, outer_last) / 3
        logs.append(_log_ratio(after_switch, after_same) - trend)
    return _paired_t(logs, CHECK_CONFIDENCE) if len(logs) >= MIN_CHECKED else None


def holds_zero(found: Estimate) -> bool:
    """Tell whether the interval holds 0, as it does where an A/A check finds nothing."""
    if found.low is None or found.high is None:
        return False
    return found.low <= _NOTHING and found.high >= -_NOTHING


def verdict(name: str, found: Estimate, check: Estimate | None) -> str:
    """Say in one sentence what the setting `name` (as in "pipelined=on") is worth.

    Percent of throughput; a slowdown and its interval are printed as positive numbers.
    """
    if found.low is None or found.high is None:
        (change,) = _percents(found.change, sign="+")
        return f"{name}: {change} %, 1 pair: too few for an interval"
    ending = f"{found.pairs} pairs, {_check_clause(check)}"
    if holds_zero(found):
        change, low, high = _percents(found.change, found.low, found.high, sign="+")
        return f"no difference shown for {name}: {change} % [{low}, {high}], {ending}"
    if found.change > 0:
        word, (change, low, high) = "faster", _percents(found.change, found.low, found.high)
    else:
        word, (change, low, high) = "slower", _percents(-found.change, -found.high, -found.low)
    return f"{name} is {change} % {word} [{low}, {high}], {ending}"


def block_order(pairs: int, seed: int) -> list[Order]:
    """Draw the order within each pair by a fair coin, for each pair anew.

    The coin is what makes Student's interval right whatever the noise remembers. Balanced
    orders look safer and are not: with one AB and one BA in every two pairs, a wave four
    blocks long raised 10 % false alarms instead of 5, and A always first, under a strong
    drift, 10 % as well.
    A longer order begins with the shorter one of the same seed.
    Raises ValueError for a negative number.
    """
    if pairs < 0:
        raise ValueError(f"the number of pairs cannot be {pairs}")
    random = Random(seed)
    orders: tuple[Order, Order] = ("AB", "BA")
    return [random.choice(orders) for _ in range(pairs)]


def round_order(settings: int, rounds: int, seed: int) -> list[list[int]]:
    """Draw the order of a sweep: every round visits each setting, 0 and up, once, shuffled.

    Raises ValueError for a negative number.
    """
    if settings < 0 or rounds < 0:
        raise ValueError(f"a sweep cannot have {settings} settings and {rounds} rounds")
    random = Random(seed)
    return [random.sample(range(settings), settings) for _ in range(rounds)]


@lru_cache(maxsize=1024)
def student_t(degrees: int, confidence: float) -> float:
    """Return how far from 0, both ways, Student's t lies with the probability `confidence`.

    Bisects the finite series of Abramowitz and Stegun, Handbook of Mathematical Functions,
    26.7.3 and 26.7.4. Raises ValueError for no degrees or a confidence not between 0 and 1.
    """
    if degrees < 1:
        raise ValueError(f"Student's t needs a degree of freedom, not {degrees}")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
    low, high = 0.0, pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if _probability_within(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return sqrt(degrees) * tan(low)


def _probability_within(angle: float, degrees: int) -> float:
    """Probability of |t| below √degrees · tan(angle)."""
    odd = degrees % 2
    term = total = (cos(angle) if degrees > 1 else 0.0) if odd else 1.0
    for factor in range(1 + odd, degrees - 2, 2):
        term *= cos(angle) ** 2 * factor / (factor + 1)
        total += term
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def _opposite_neighbours(orders: Sequence[Order]) -> Iterator[int]:
    """Yield where two pairs of opposite orders follow each other, no pair twice."""
    at = 0
    while at < len(orders) - 1:
        opposite = orders[at] != orders[at + 1]
        if opposite:
            yield at
        at += 2 if opposite else 1


def _log_ratio(cost_a: float, cost_b: float) -> float:
    for cost in (cost_a, cost_b):
        if not (isfinite(cost) and cost > 0):
            raise ValueError(f"the cost of a block must be positive and finite, not {cost}")
    return log(cost_a) - log(cost_b)


def _paired_t(logs: Sequence[float], confidence: float) -> Estimate:
    count = len(logs)
    if not count:
        raise ValueError("a comparison needs at least one pair")
    centre = fsum(logs) / count
    low = high = None
    if count > 1:
        variance = fsum((value - centre) ** 2 for value in logs) / (count - 1)
        half = student_t(count - 1, confidence) * sqrt(variance / count)
        low, high = _relative(centre - half), _relative(centre + half)
    return Estimate(
        pairs=count, change=_relative(centre), low=low, high=high, confidence=confidence
    )


def _relative(logarithm: float) -> float:
    # two wild pairs can send the end of an interval beyond what a float holds
    return expm1(logarithm) if logarithm < 700 else inf


def _check_clause(check: Estimate | None) -> str:
    if check is None:
        return "no A/A check"
    if holds_zero(check):
        return "A/A check passed"
    (change,) = _percents(abs(check.change))
    more = "more" if check.change > 0 else "less"
    return f"A/A check failed: a block right after a switch costs about {change} % {more}"


def _percents(*changes: float, sign: Literal["", "+"] = "") -> list[str]:
    """Print a change, or one with its interval, so that the width and both ends show."""
    ends = changes[1:] or changes
    sizes = (abs(size) for size in (*ends, ends[-1] - ends[0]) if abs(size) > _NOTHING)
    smallest = 100 * min(sizes, default=inf)
    decimals = next((count for count in (1, 2) if smallest >= 0.1**count), 3)
    return [f"{100 * change:{sign}z.{decimals}f}" for change in changes]
