"""An interval that holds however often one looks at it: a confidence sequence.

The usual interval, looked at after each of 40 pairs, finds a difference between equal settings in
29 % of the comparisons. This one holds the truth after every pair at once in 95 %, so stopping
because of what it shows is right. For that it is 1.6 to 1.8 times as long from eight pairs on.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import exp, fsum, log, log1p, sqrt

from gpudash.compare.paired_t import Estimate, Order, are_mixed, around, is_within, log_ratio

EFFECTS = (1.0,)
"""Standard deviations of the effects for which the interval is shortest, in a pair's standard
deviations. With 0.5 to 2 it has about the same length."""
LARGE_TOO = (1.0, 10.0)
"""The same for levers whose effects are often many times a pair's spread, and whose pairs are dear.
The interval has ends from three pairs on instead of five, and is 7 % longer after forty."""
LEAST = 0.01
"""A difference that nobody needs to know more closely, relative: 1 %."""
CLOSE = 0.25
"""An effect is known well if it is known to ± this part of it."""


def estimate_so_far(
    pairs: Sequence[tuple[float, float]],
    confidence: float = 0.95,
    effects: tuple[float, ...] = EFFECTS,
    orders: Sequence[Order] | None = None,
) -> Estimate:
    """Compare pairs (cost of A, cost of B) so far; needs a pair.

    The interval holds those changes against which the e-process of the t-test stays below
    1 / (1 - confidence): a normal mixture over the standardised effect (Lai, Annals of Statistics,
    1976; Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with
    unknown variance", 2024), or the mean of several. `effects` may not depend on the pairs. Given
    `orders`, it has no ends before each setting came first once. Raises ValueError for a cost that
    is not positive and finite.
    """
    logs = [log_ratio(*pair) for pair in pairs]
    count, centre = len(logs), fsum(logs) / len(logs)
    spread = fsum([(value - centre) ** 2 for value in logs]) / count
    reached, half = reach(count, confidence, effects), None
    if reached is not None and (orders is None or are_mixed(orders)):
        half = reached * sqrt(spread)
    return around(centre, half, count, confidence)


@lru_cache(maxsize=4096)
def reach(count: int, confidence: float, effects: tuple[float, ...]) -> float | None:
    """Return half the interval's length in standard deviations; None if it has no ends."""
    enough = -log1p(-confidence) + log(len(effects))
    low, high = -60.0, 60.0  # logarithms of its square
    if evidence(count, exp(high), effects) < enough:
        return None
    while high - low > 1e-12:
        middle = (low + high) / 2
        if evidence(count, exp(middle), effects) < enough:
            low = middle
        else:
            high = middle
    return exp(high / 2)


def evidence(count: int, square: float, effects: tuple[float, ...]) -> float:
    """Return the log of the e-process, times the number of effects, where a change lies so far off.

    `square`: of its distance from the mean, in standard deviations.
    """
    logs = []
    for effect in effects:
        prior = 1 / effect**2
        grows = count * square / (count + prior + prior * square)
        logs.append(log(prior / (count + prior)) / 2 + count / 2 * log1p(grows))
    largest = max(logs)
    return largest + log(fsum(exp(one - largest) for one in logs))


def is_sure(found: Estimate) -> bool:
    return found.low is not None and found.high is not None and (found.low > 0 or found.high < 0)


def is_settled(found: Estimate, precision: float | None = None) -> bool:
    """Whether the interval is ± `precision` without 0, or lies within ± `precision` of 0.

    None: a quarter of the change, or 1 % if that is more.
    """
    if (half := found.half_width) is None:
        return False
    wanted = max(CLOSE * abs(found.change), LEAST) if precision is None else precision
    return (is_sure(found) and half <= wanted) or is_within(found, least_of(precision))


def least_of(precision: float | None) -> float:
    return LEAST if precision is None else precision
