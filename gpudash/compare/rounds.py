"""Judge a change between two programs by starts: a round is one start of each side.

A start has a pace of its own, so its blocks count together as one (`starts.py`). The starts go on
until the change is known: the interval holds at every look.

Rounds that take S + B seconds, for the start and the blocks, have a variance of s + w / B, that of
starts and that of blocks. The best B is √(S w / s). The first rounds do not know it and take B = S,
which needs at most twice the time: 2 (S s + w) is at most 2 (√(S s) + √w)².
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import fsum, sqrt
from statistics import fmean, stdev, variance
from typing import NamedTuple

from gpudash import format as fmt
from gpudash.compare.paired_t import Estimate, around, effect, is_within, log_ratio
from gpudash.compare.sequential import (
    LEAST,
    estimate_so_far,
    is_settled,
    is_sure,
    least_of,
    reach,
)

CONFIDENCE = 0.99
"""Whoever asks about each change of a day asks often: at 95 % one in twenty would be an alarm."""
EFFECTS = (1.0, 4.0)
"""As in `sequential.py`. From 0.3 to 30 spreads of a round no other choice ends more than a round
or 3 % earlier; for (1.0,) and (2.0,) a large change takes six and five rounds."""
KNOW_SPREAD = 2
"""Rounds after which it is first guessed."""
FEWEST_ROUNDS = 4
"""With fewer the interval has no ends."""

_MOST = 2**20
"""Rounds up to which a forecast is made."""


class StartCosts(NamedTuple):
    """One start of each side."""

    costs: tuple[float, float]
    """Of A and B: the geometric mean over a side's blocks, in ms a sample or step."""
    seconds: float
    """What it took in all, the starts included."""
    measured_s: float = 0.0
    """Of them, for its blocks."""
    noise: float = 0.0
    """Variance of the logarithm of its ratio, as its blocks alone explain it."""


def measuring_s(rounds: Sequence[StartCosts], start_s: float) -> float:
    """Return for how long to measure after a start that took so long."""
    if len(rounds) < KNOW_SPREAD:
        return start_s
    noise = fmean(one.noise for one in rounds)
    of_starts = max(variance(log_ratio(*one.costs) for one in rounds) - noise, noise)
    of_blocks = fmean(one.noise * one.measured_s for one in rounds)
    return min(start_s, sqrt(start_s * of_blocks / of_starts)) if of_starts else start_s


def over_rounds(rounds: Sequence[StartCosts]) -> Estimate:
    """Compare what there is so far; needs a round."""
    return estimate_so_far([one.costs for one in rounds], CONFIDENCE, EFFECTS)


def is_decided(found: Estimate, within: float | None) -> bool:
    """Whether the change is known to ± `within`; None: its sign, or that it is none above 1 %."""
    if within is None:
        return is_sure(found) or is_within(found, LEAST)
    return is_settled(found, within)


def seconds_to_decide(rounds: Sequence[StartCosts], within: float | None = None) -> float | None:
    return seconds_until(partial(is_decided, within=within), rounds)


def seconds_until(
    is_known: Callable[[Estimate], bool], rounds: Sequence[StartCosts]
) -> float | None:
    """Return what that still takes if change and spread stay; None if it is not known."""
    if is_known(over_rounds(rounds)):
        return 0.0
    if len(rounds) < FEWEST_ROUNDS:
        return None
    logs = [log_ratio(*one.costs) for one in rounds]
    centre, spread = fsum(logs) / len(logs), stdev(logs)
    low, high = len(rounds), _MOST
    if not is_known(_foreseen(high, centre, spread)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if is_known(_foreseen(middle, centre, spread)):
            high = middle
        else:
            low = middle
    return (high - len(rounds)) * fsum(one.seconds for one in rounds) / len(rounds)


def _foreseen(count: int, centre: float, spread: float) -> Estimate:
    reached = reach(count, CONFIDENCE, EFFECTS)
    assert reached is not None
    return around(centre, reached * spread, count, CONFIDENCE)


def rounds_within(budget_s: float, round_s: float) -> int:
    return int(budget_s / round_s)


def of_budget(budget_s: float, first: StartCosts) -> str:
    """Say after the first round, which takes longest, that the budget may not suffice."""
    if rounds_within(budget_s, first.seconds) >= FEWEST_ROUNDS:
        return ""
    return (
        f"{fmt.minutes(budget_s)} hardly suffices: a start of each took {about(first.seconds)}, "
        f"and a change is known after {FEWEST_ROUNDS} of each at the earliest"
    )


def verdict(name: str, rounds: Sequence[StartCosts], within: float | None = None) -> str:
    found = over_rounds(rounds)
    decided = is_decided(found, within)
    said = effect(name, found, least_of(within)) if decided or is_sure(found) else ""
    shown = said or f"inconclusive: {fmt.change(found.change, found.low, found.high)}"
    many = fmt.starts(len(rounds))
    more_s = seconds_to_decide(rounds, within)
    if decided:
        return f"{shown}, {many}"
    if more_s is None:
        too_few = "; too few for an interval" * (found.low is None)
        return f"{shown}, {many}{too_few}"
    what = "a decision" if within is None else f"± {100 * within:g} %"
    return f"{shown}, {many}; {what} would take about {about(more_s)} more"


def about(seconds: float) -> str:
    for unit, length_s in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"
