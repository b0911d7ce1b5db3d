"""Is a change allowed to be: a loss up to a limit passes, and what is not known is not called one.

Throughput is judged by the interval over starts (`rounds.py`), which holds at every look, so a gate
ends as soon as it knows. `forecast` says before what it can find at all, from starts of equal
sides.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from math import expm1, inf, log1p, sqrt
from random import Random
from statistics import fmean, median, quantiles, stdev
from typing import Literal, NamedTuple, TypeAlias

from gpudash import format as fmt
from gpudash.compare.counted import CountChange
from gpudash.compare.losses import compare_losses
from gpudash.compare.paired_t import Estimate, effect, log_ratio
from gpudash.compare.rounds import (
    CONFIDENCE,
    EFFECTS,
    FEWEST_ROUNDS,
    StartCosts,
    about,
    over_rounds,
    rounds_within,
    seconds_until,
)
from gpudash.compare.sequential import is_sure, reach

Ending: TypeAlias = Literal[
    "pass", "faster", "slower", "inconclusive", "not comparable", "training changed"
]
FOUND = 0.9
"""Share of the gates that find the loss which a forecast names."""
FORESEEN = 1000
"""Gates that a forecast goes through."""
MOST_LOOKS = 100
"""Of each."""


def of_throughput(found: Estimate, limit: float) -> Ending:
    """Judge the whole interval: beyond the limit, above 0, within the limit, or neither."""
    if found.low is None or found.high is None:
        return "inconclusive"
    if found.high < -limit:
        return "slower"
    if found.low > 0:
        return "faster"
    return "pass" if found.low >= -limit else "inconclusive"


def ending(found: Estimate, limit: float, counts: Sequence[CountChange] = ()) -> Ending:
    """Call it slower too if a count has grown, unless the training is faster for that."""
    of_time = of_throughput(found, limit)
    has_grown = any(one.has_grown for one in counts)
    return "slower" if has_grown and of_time != "faster" else of_time


def are_moved(a: Sequence[Mapping[int, float]], b: Sequence[Mapping[int, float]]) -> bool:
    """Whether losses moved beyond doubt: each side repeats its own to the last bit.

    Spreads that are looked at after every start would cross their bounds sooner or later.
    """
    if len(a) < FEWEST_ROUNDS or not all(map(_repeats, (a, b))):
        return False
    found = compare_losses(a, b)
    return found is not None and found.kind == "moved"


def _repeats(starts: Sequence[Mapping[int, float]]) -> bool:
    found = (compare_losses(starts[:1], [one]) for one in starts[1:])
    return all(one is not None and one.kind == "identical" for one in found)


def sentence(name: str, rounds: Sequence[StartCosts], limit: float) -> str:
    found, many, allowed = over_rounds(rounds), fmt.starts(len(rounds)), f"{100 * limit:g} %"
    of_time = of_throughput(found, limit)
    if of_time != "inconclusive":
        how = {"slower": f", beyond {allowed}", "pass": f", within {allowed}"}
        return f"{effect(name, found)}{how.get(of_time, '')}, {many}"
    if is_sure(found):
        shown = f"{effect(name, found)}, perhaps beyond {allowed}"
    else:
        shown = f"{name}: {fmt.change(found.change, found.low, found.high)}"
    if found.low is None:
        return f"{shown}, {many}; too few for an interval"
    more_s = seconds_to_end(rounds, limit)
    takes = "" if more_s is None else f"; a decision would take about {about(more_s)} more"
    return f"{shown}, {many}{takes}"


def seconds_to_end(rounds: Sequence[StartCosts], limit: float) -> float | None:
    return seconds_until(lambda found: of_throughput(found, limit) != "inconclusive", rounds)


# ── what it can find ────────────────────────────────────────────────────────────────────


class Findable(NamedTuple):
    """What a gate finds here."""

    spread: float
    """Of the ratio of two starts, relative."""
    loss: float
    """The smallest loss that it calls slower in 90 %; infinite if the budget is too short."""
    loss_s: float
    """What that takes, in the median."""
    passes: float
    """Share of unchanged trainings that pass."""
    pass_s: float
    """What that takes, in the median of those."""


def forecast(rounds: Sequence[StartCosts], limit: float, budget_s: float) -> Findable | None:
    """Go through gates with the spread of these starts of equal sides; None with too few.

    In spreads, the truth has to lie so far beyond the limit that mean and half an interval reach
    it: the least of that over all looks is what one gate needs. Both directions are alike.
    """
    if len(rounds) < FEWEST_ROUNDS:
        return None
    spread = stdev(log_ratio(*one.costs) for one in rounds)
    round_s = fmean(one.seconds for one in rounds)
    random, most = Random(0), min(rounds_within(budget_s, round_s), MOST_LOOKS)
    gates = [_margins(random, most) for _ in range(FORESEEN)]
    needs = [min(one) for one in gates]
    needed = quantiles(needs, n=100, method="inclusive")[round(100 * FOUND) - 1]
    room = -log1p(-limit) / spread if spread else inf
    known = needed < inf
    return Findable(
        spread=expm1(spread),
        loss=-expm1(log1p(-limit) - needed * spread) if known else inf,
        loss_s=round_s * median(_looks(one, needed) for one in gates) if known else inf,
        passes=fmean(one < room for one in needs),
        pass_s=round_s * median([_looks(one, room) for one in gates if min(one) < room] or [inf]),
    )


def _margins(random: Random, most: int) -> list[float]:
    """Return after each look how far the interval's end lies from the truth, in spreads."""
    total = squares = 0.0
    found = []
    for number in range(1, most + 1):
        drawn = random.gauss()
        total, squares = total + drawn, squares + drawn**2
        mean, reached = total / number, reach(number, CONFIDENCE, EFFECTS)
        half = inf if reached is None else reached * sqrt(max(squares / number - mean**2, 0))
        found.append(mean + half)
    return found or [inf]


def _looks(margins: Sequence[float], room: float) -> int:
    """Return the looks until one decides; all, if none does."""
    decided = (number for number, one in zip(count(1), margins) if inf > one <= room)
    return next(decided, len(margins))


def foreseen(name: str, found: Findable, limit: float, budget_s: float) -> str:
    if found.loss == inf:
        return f"{about(budget_s)} cannot suffice: a change is known after {FEWEST_ROUNDS} starts"
    passes = f"an unchanged training passes {100 * limit:g} % in {100 * found.passes:.0f} %"
    takes = f" (half of them in {about(found.pass_s)})" * (found.pass_s < inf)
    return (
        f"starts of {name} differ by {100 * found.spread:.2g} %: within {about(budget_s)}, "
        f"a loss of {100 * found.loss:.2g} % is found in {100 * FOUND:.0f} % (half of them in "
        f"{about(found.loss_s)}), {passes}{takes}"
    )
