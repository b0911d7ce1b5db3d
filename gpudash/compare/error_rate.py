"""How much of what many attempts claim is wrong: each may err as often as those before it allow.

An interval of 95 % errs once in twenty comparisons, so whoever tries until something looks faster
will find it. Here each attempt has a level of its own: LORD++, a form of alpha investing (Foster
and Stine, Journal of the Royal Statistical Society B, 2008; Ramdas, Yang, Wainwright and Jordan,
"Online control of the false discovery rate with decaying memory", 2017). At any moment the levels
so far add up to at most `RATE` times the claims that held, or to `RATE` if none did. So wherever
one stops, the wrong ones are expected to be at most that part of them. All it needs is that an
attempt errs at most as often as its level, whatever was found before: each measures anew, and an
interval that holds at every look may be ended because of what it shows.
"""

from collections.abc import Iterable
from math import exp, log1p

from gpudash.compare.paired_t import Estimate, probability_beyond, student_t
from gpudash.compare.sequential import evidence, reach

RATE = 0.05
"""Of the claims that hold, so large a part may be wrong, in expectation."""
MEANING = (
    f"wherever one stops, and whatever was tried because of earlier verdicts: of the claims that "
    f"hold at most {100 * RATE:g} % are wrong in expectation (LORD++)"
)
_FAR = 1e12
"""Half intervals that 0 is away from one without any length."""
_LEAST = -1 + 1e-15
"""Least change that has a logarithm."""


def level(found: Estimate, count: int, effects: tuple[float, ...] | None) -> float | None:
    """Return the error rate at which the interval would just reach 0; None without an interval.

    `count`: pairs or starts. `effects`: those of an interval that holds at every look; None:
    Student's, of a number that was fixed before.
    """
    if found.low is None:
        return None
    centre = log1p(max(found.change, _LEAST))
    half = centre - log1p(max(found.low, _LEAST))
    away = abs(centre) / half if half > 0 else _FAR
    if effects is None:
        return probability_beyond(away * student_t(count - 1, found.confidence), count - 1)
    reached = reach(count, found.confidence, effects)
    assert reached is not None
    return min(1.0, len(effects) * exp(-evidence(count, (away * reached) ** 2, effects)))


def which_hold(levels: Iterable[float | None]) -> list[bool]:
    """Tell of each attempt, in order, whether it holds; None has claimed nothing."""
    held: list[bool] = []
    for one in levels:
        held.append(one is not None and one <= allowed(held))
    return held


def allowed(before: list[bool]) -> float:
    """Return the level of the next attempt, by which of those before it held."""
    at = len(before)
    since = [at - number for number, holds in enumerate(before) if holds]
    first, later = since[:1], since[1:]
    return RATE * ((_share(at + 1) + sum(map(_share, first))) / 2 + sum(map(_share, later)))


def _share(number: int) -> float:
    """Return a part for the first, second … attempt; all together are 1."""
    return 1 / (number * (number + 1))
