"""What a comparison says of joules and of money, as lines and as a part of the documents.

Money follows from the price of a GPU for an hour. No currency is known, so none is named.
"""

from collections.abc import Iterator
from math import floor, log10

import msgspec

from gpudash.compare.starts import Sides
from gpudash.format import ABSENT, change, is_measured
from gpudash.protocol.session import ComparisonShown, EnergyFound

HOURS_A_DAY = 24


def of_a_million(price: float, gpus: int, samples_per_s: float | None) -> float | None:
    """Return what a million samples cost; None without a rate."""
    if not samples_per_s:
        return None
    return price * max(gpus, 1) / 3600 / samples_per_s * 1e6


def saved_a_day(price: float, gpus: int, change: float) -> float:
    """Return what a day's work under A costs less under B, whose throughput is so much higher."""
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
    """Return what the training costs under both settings; None without a price."""
    if price is None:
        return None
    gpus = max(shown.gpus, 1)
    a, b = shown.samples_per_s
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
    """Yield a line on energy, if it was asked for, and one on money, if there is a price."""
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
    """Return a value with its error, which has two digits: `1.8750 ± 0.0016`."""
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
    """Return an amount: in hundredths, a small one to three digits."""
    if not is_measured(amount):
        return ABSENT
    return f"{amount:,.2f}" if abs(amount) >= 1 or amount == 0 else f"{amount:.3g}"
