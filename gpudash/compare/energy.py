"""Energy and money of a sample under two settings. The sensor's error cancels in their ratio."""

from collections.abc import Callable, Iterator, Sequence
from math import expm1, floor, fsum, hypot, log, log10, sqrt
from statistics import geometric_mean, stdev
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from gpudash.compare.blocks import MeasuredBlock
from gpudash.compare.meter import BlockEnergy
from gpudash.compare.paired_t import Estimate, estimate, student_t
from gpudash.format import ABSENT, change, is_measured
from gpudash.protocol.session import ComparisonShown, EnergyFound, Sides

SENSOR = 0.05
"""Systematic error of the sensor, relative: NVIDIA's own figure."""
Per: TypeAlias = Literal["sample", "step"]
Method: TypeAlias = Callable[[Sequence[tuple[float, float]]], Estimate]


def of_blocks(
    pairs: Sequence[tuple[MeasuredBlock, MeasuredBlock]], method: Method
) -> tuple[EnergyFound | None, str]:
    """Return a reason if it is not known. `method` says whether the number of pairs was fixed."""
    by_step = any(one.samples is None for pair in pairs for one in pair)
    known, why = [], ""
    for a, b in pairs:
        if isinstance(a.energy, str) or isinstance(b.energy, str):
            why = next(one.energy for one in (a, b) if isinstance(one.energy, str))
        else:
            known.append((_share(a, a.energy), _share(b, b.energy)))
    found = compared(known, "step" if by_step else "sample", method)
    return found, "" if found is not None else why or "too few pairs of blocks"


def _share(block: MeasuredBlock, spent: BlockEnergy) -> "Share":
    work = block.samples or block.steps
    return Share(spent.joules / work, spent.within_j / work)


class Share(NamedTuple):
    """Energy of a block by the work that it did."""

    joules: float
    """Of a sample, or of a step if samples are unknown."""
    within_j: float


def compared(
    pairs: Sequence[tuple[Share, Share]],
    per: Per,
    method: Method,
) -> EnergyFound | None:
    if len(pairs) < 2 or any(one.joules <= 0 for pair in pairs for one in pair):
        return None
    more = method([(a.joules, b.joules) for a, b in pairs])  # work of a joule, B's against A's
    a, b = (_side([pair[side] for pair in pairs]) for side in (0, 1))
    return EnergyFound(
        per=per,
        pairs=len(pairs),
        joules=(a.joules, b.joules),
        within=(a.within_j, b.within_j),
        pairs_j=tuple((a.joules, b.joules) for a, b in pairs),
        change=_inverse(more.change),
        low=None if more.high is None else _inverse(more.high),
        high=None if more.low is None else _inverse(more.low),
        confidence=more.confidence,
        sensor=SENSOR,
    )


def of_starts(found: Sequence[EnergyFound | None]) -> EnergyFound | None:
    """Count each start as one pair; None unless each has found something."""
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    pairs = [(Share(one.joules[0], 0.0), Share(one.joules[1], 0.0)) for one in known]
    per: Per = "step" if any(one.per == "step" for one in known) else "sample"
    whole = compared(pairs, per, estimate)
    return whole and msgspec.structs.replace(whole, pairs=sum(one.pairs for one in known))


def _side(blocks: Sequence[Share]) -> Share:
    count = len(blocks)
    joules = geometric_mean(one.joules for one in blocks)
    spread = stdev(log(one.joules) for one in blocks)
    of_ticks = sqrt(fsum((one.within_j / one.joules) ** 2 for one in blocks)) / count
    half = hypot(student_t(count - 1, 0.95) * spread / sqrt(count), 1.96 * of_ticks)
    return Share(joules, joules * expm1(half))


def _inverse(change: float) -> float:
    return 1 / (1 + change) - 1


HOURS_A_DAY = 24


def of_a_million(price: float, gpus: int, samples_per_s: float | None) -> float | None:
    if not samples_per_s:
        return None
    return price * max(gpus, 1) / 3600 / samples_per_s * 1e6


def saved_a_day(price: float, gpus: int, change: float) -> float:
    return price * max(gpus, 1) * HOURS_A_DAY * (1 - 1 / (1 + change))


def saved(price: float, shown: ComparisonShown) -> tuple[float, float, float] | None:
    """Return the saving a day with the ends of its interval; None unless the change is sure."""
    if shown.change is None or shown.low is None or shown.high is None:
        return None
    if shown.low <= 0 <= shown.high:
        return None
    low, change, high = (
        saved_a_day(price, shown.gpus, each) for each in (shown.low, shown.change, shown.high)
    )
    return change, low, high


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What a training costs, in the currency of the price."""

    price: float
    """Of one GPU for an hour, as `--price` says."""
    gpus: int
    """GPUs that are paid for: at least one."""
    million_samples: Sides
    """What a million samples cost under a and under b. None = not measured."""
    saved_a_day: float | None
    """What a day's work under a costs less under b; None if no difference in throughput is shown.
    Negative if b is slower."""
    low: float | None
    high: float | None
    """Ends of the interval of `saved_a_day`."""


def costs(price: float | None, shown: ComparisonShown) -> Costs | None:
    if price is None:
        return None
    gpus = max(shown.gpus, 1)
    a, b = shown.of("samples_per_s")
    saving, low, high = saved(price, shown) or (None, None, None)
    return Costs(
        price=price,
        gpus=gpus,
        million_samples=(of_a_million(price, gpus, a), of_a_million(price, gpus, b)),
        saved_a_day=saving,
        low=low,
        high=high,
    )


def worth_lines(shown: ComparisonShown, price: float | None, *, energy: bool) -> Iterator[str]:
    if energy:
        yield from _energy_lines(shown, shown.energy)
    yield from _cost_lines(shown, costs(price, shown))


def _energy_lines(shown: ComparisonShown, found: EnergyFound | None) -> Iterator[str]:
    if found is None:
        yield f"energy is not known: {shown.why_no_energy or 'too few pairs of blocks'}"
        return
    a, b = (
        f"{with_error(joules, within)} J"
        for joules, within in zip(found.joules, found.within, strict=True)
    )
    less = change(found.change, found.low, found.high)
    yield (
        f"energy of a {found.per}: {shown.a} {a}, {shown.b} {b}: {less}, {found.pairs} pairs; "
        f"the sensor may be off by {100 * found.sensor:.0f} %, alike for both"
    )


def with_error(value: float, error: float) -> str:
    """Give the error two digits: `1.8750 ± 0.0016`."""
    decimals = max(0, 1 - floor(log10(error))) if error > 0 else 3
    return f"{value:,.{decimals}f} ± {error:.{decimals}f}"


def _cost_lines(shown: ComparisonShown, found: Costs | None) -> Iterator[str]:
    if found is None:
        return
    a, b = (money(each) for each in found.million_samples)
    paid = {0: "the machine", 1: "a GPU"}.get(shown.gpus, f"each of {found.gpus} GPUs")
    yield (
        f"at {money(found.price)} an hour for {paid}, a million samples cost {a} with {shown.a} "
        f"and {b} with {shown.b}{_saving(shown, found)}"
    )


def _saving(shown: ComparisonShown, found: Costs) -> str:
    if found.saved_a_day is None or found.low is None or found.high is None:
        return "; no saving is shown"
    a_day, *ends = found.saved_a_day, found.low, found.high
    word = "saves" if a_day > 0 else "costs"
    low, high = sorted(map(abs, ends))
    more = "" if a_day > 0 else " more"
    return f"; {shown.b} {word} {money(abs(a_day))}{more} a day [{money(low)}, {money(high)}]"


def money(amount: float | None) -> str:
    if not is_measured(amount):
        return ABSENT
    return f"{amount:,.2f}" if abs(amount) >= 1 or amount == 0 else f"{amount:.3g}"
