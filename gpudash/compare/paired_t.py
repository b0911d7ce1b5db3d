"""Estimate from interleaved blocks whether B is faster than A, by how much, and how surely.

Blocks under A and B alternate in pairs, in random order, so what both of a pair share (drift,
clocks, other load) cancels in the ratio of their costs. The interval is Student's, over the
logarithms of those ratios, for a number of pairs that was fixed before. A cost is any positive time
per unit of work. No numpy: the screen's process imports this.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import atan, cos, expm1, fsum, inf, log, pi, sin, sqrt, tan
from random import Random
from typing import Literal, TypeAlias

import msgspec

from gpudash import format as fmt

Order: TypeAlias = Literal["AB", "BA"]
"""Which block of a pair came first."""

CHECK_CONFIDENCE = 0.99
"""Confidence of the control: it fails by chance in one comparison of a hundred."""
MIN_CHECKED = 4
"""Least pairs of neighbouring blocks for a control. With two, Student's t at this confidence is
64, and the check would always pass."""

_NOTHING = 1e-9
"""Relative changes up to this are rounding errors."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """How much faster B is than A. All changes are relative: 0.05 is 5 % more throughput."""

    pairs: int
    change: float
    """Throughput of B over that of A, less 1: positive if B is faster."""
    low: float | None
    high: float | None
    """Ends of the confidence interval of `change`; None with fewer than two pairs."""
    confidence: float = 0.95

    @property
    def half_width(self) -> float | None:
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2


def estimate(pairs: Sequence[tuple[float, float]], confidence: float = 0.95) -> Estimate:
    """Compare pairs (cost of A, cost of B); needs a pair.

    Raises ValueError for a cost that is not positive and finite.
    """
    return student([log_ratio(*pair) for pair in pairs], confidence)


def same_setting_check(
    pairs: Sequence[tuple[float, float]], orders: Sequence[Order]
) -> Estimate | None:
    """Compare neighbouring blocks of the same setting: the control. None if there are too few.

    If a pair follows one of the opposite order (A B, B A), the two blocks in the middle ran under
    one setting, only the second without a switch before it: `change` is about how much more a block
    right after a switch costs. The outer two blocks, three apart, remove a trend.

    Raises ValueError for a cost that is not positive and finite.
    """
    blocks = [
        (a, b) if order == "AB" else (b, a) for (a, b), order in zip(pairs, orders, strict=True)
    ]
    logs = []
    for first in _opposite_neighbours(orders):
        (outer_first, after_switch), (after_same, outer_last) = blocks[first : first + 2]
        trend = log_ratio(outer_first, outer_last) / 3
        logs.append(log_ratio(after_switch, after_same) - trend)
    return student(logs, CHECK_CONFIDENCE) if len(logs) >= MIN_CHECKED else None


def pairs_until_check(blocks: str) -> int:
    """Expect a neighbour in three pairs: every second is followed by one of the opposite order."""
    orders: list[Order] = ["AB" if first == "A" else "BA" for first in blocks[::2]]
    return 3 * max(MIN_CHECKED - len([*_opposite_neighbours(orders)]), 0)


def holds_zero(found: Estimate) -> bool:
    if found.low is None or found.high is None:
        return False
    return found.low <= _NOTHING and found.high >= -_NOTHING


def is_within(found: Estimate, least: float) -> bool:
    if found.low is None or found.high is None:
        return False
    return -least <= found.low <= found.high <= least


def verdict(name: str, found: Estimate, check: Estimate | None, least: float = 0.0) -> str:
    """Call a difference up to `least` none, if the interval shows that it is no larger."""
    if found.low is None or found.high is None:
        (change,) = _percents(found.change, sign="+")
        return f"{name}: {change} %, {fmt.pairs(found.pairs)}: too few for an interval"
    return f"{effect(name, found, least)}, {found.pairs} pairs, {check_clause(check)}"


def effect(name: str, found: Estimate, least: float = 0.0) -> str:
    low, high = found.low, found.high
    assert low is not None
    assert high is not None
    if holds_zero(found):
        shown = _percents(found.change, low, high, sign="+")
        none = "no difference shown"
        if least and is_within(found, least):
            none = f"no difference above {100 * least:g} %"
        return f"{none} for {name}: {shown[0]} % [{shown[1]}, {shown[2]}]"
    if found.change > 0:
        word, (change, *ends) = "faster", _percents(found.change, low, high)
    else:
        word, (change, *ends) = "slower", _percents(-found.change, -high, -low)
    return f"{name} is {change} % {word} [{ends[0]}, {ends[1]}]"


def block_order(pairs: int, seed: int) -> list[Order]:
    """Return a random order within each pair, independent of the other pairs.

    That makes Student's interval valid even for correlated noise. Balanced orders look safer and
    are not: with one AB and one BA in every two pairs, a wave four blocks long raised 10 % false
    alarms instead of 5 %. A longer order begins with the shorter one of the same seed.
    """
    random = Random(seed)
    orders: tuple[Order, Order] = ("AB", "BA")
    return [random.choice(orders) for _ in range(pairs)]


def are_mixed(orders: Sequence[Order]) -> bool:
    """Whether each setting came first once: else what is first or second seems an effect."""
    return len({*orders}) > 1


def round_order(settings: int, rounds: int, seed: int) -> list[list[int]]:
    random = Random(seed)
    return [random.sample(range(settings), settings) for _ in range(rounds)]


@lru_cache(maxsize=1024)
def student_t(degrees: int, confidence: float) -> float:
    """Return the bound that |t| of Student's t stays below with the probability `confidence`.

    Bisects the finite series of Abramowitz and Stegun, Handbook of Mathematical Functions,
    26.7.3 and 26.7.4.
    """
    low, high = 0.0, pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if _probability_within(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return sqrt(degrees) * tan(low)


def probability_beyond(t: float, degrees: int) -> float:
    """Return how often |t| of Student's t is larger."""
    return max(0.0, 1.0 - _probability_within(atan(t / sqrt(degrees)), degrees))


def _probability_within(angle: float, degrees: int) -> float:
    odd = degrees % 2
    term = total = (cos(angle) if degrees > 1 else 0.0) if odd else 1.0
    for factor in range(1 + odd, degrees - 2, 2):
        term *= cos(angle) ** 2 * factor / (factor + 1)
        total += term
    return 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def _opposite_neighbours(orders: Sequence[Order]) -> Iterator[int]:
    at = 0
    while at < len(orders) - 1:
        opposite = orders[at] != orders[at + 1]
        if opposite:
            yield at
        at += 2 if opposite else 1


def log_ratio(cost_a: float, cost_b: float) -> float:
    """May raise ValueError, if a cost is not positive and finite."""
    for cost in (cost_a, cost_b):
        if not 0 < cost < inf:
            raise ValueError(f"the cost of a block must be positive and finite, not {cost}")
    return log(cost_a) - log(cost_b)


def student(logs: Sequence[float], confidence: float) -> Estimate:
    """Return Student's interval of the mean of these logarithms."""
    count = len(logs)
    centre, half = fsum(logs) / count, None
    if count > 1:
        variance = fsum([(value - centre) ** 2 for value in logs]) / (count - 1)
        half = student_t(count - 1, confidence) * sqrt(variance / count)
    return around(centre, half, count, confidence)


def around(centre: float, half: float | None, pairs: int, confidence: float) -> Estimate:
    """Take mean and half an interval of logarithms; without the latter it has no ends."""
    low = high = None
    if half is not None:
        low, high = relative(centre - half), relative(centre + half)
    return Estimate(pairs=pairs, change=relative(centre), low=low, high=high, confidence=confidence)


def relative(logarithm: float) -> float:
    # two extreme pairs can push an interval's end beyond a float's range
    return expm1(logarithm) if logarithm < 700 else inf


def check_clause(check: Estimate | None) -> str:
    if check is None:
        return "no control yet"
    if holds_zero(check):
        return "control passed"
    (change,) = _percents(abs(check.change))
    more = "more" if check.change > 0 else "less"
    return f"control failed: a block right after a switch costs about {change} % {more}"


def _percents(*changes: float, sign: Literal["", "+"] = "") -> list[str]:
    """Give enough decimals to show an interval's width and both ends."""
    ends = changes[1:] or changes
    sizes = (abs(size) for size in (*ends, ends[-1] - ends[0]) if abs(size) > _NOTHING)
    smallest = 100 * min(sizes, default=inf)
    decimals = next((count for count in (1, 2) if smallest >= 0.1**count), 3)
    return [f"{100 * change:{sign}z.{decimals}f}" for change in changes]
