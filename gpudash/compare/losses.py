"""Is the training still the same? The losses of the first steps, side against side.

With fixed seeds a side's own starts are alike to the last bit, and so any difference is one of the
sides. Else the difference of the sides' means is held against the spread of each side's own starts:
Student's t at every step, at a level that all steps share (Bonferroni: it holds however the steps
of a start hang together). Rounding grows from step to step and makes starts part. So a spread that
was seen once is that of all later steps too. It is never less than the last digit of the losses:
those in bf16 or with two decimals seem to have none, and differ by a digit now and then.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from math import frexp, fsum, isfinite, isnan, ldexp, sqrt
from typing import Literal, NamedTuple

import msgspec

from gpudash import format as fmt
from gpudash.compare.paired_t import student_t
from gpudash.protocol.session import NOT_COMPARED

MOST_STEPS = 64
FALSE_ALARMS = 0.01
"""At most, over all steps of a comparison."""
LARGEST = 3.4e38
"""Of float32: a loss beyond is infinite."""
FLOAT32_UNIT = 2.0**-23
"""A unit in the last place, relative."""
ROUNDING_UNITS = 8
"""A sum in another order differs by a few."""


class LossesFound(msgspec.Struct, frozen=True, kw_only=True):
    """Whether two sides train alike."""

    kind: Literal["identical", "within spread", "moved", "not known"]
    steps: int
    """Compared. If within the spread: up to the last one at which a difference as large as the
    loss's own progress until then would show."""
    from_step: int | None = None
    """The first one that moved."""
    change: float | None = None
    """The largest of those that moved, relative to A; None if one is not finite."""
    is_rounding: bool = False
    """Whether the first difference is no more than float32 rounds, as a fused kernel's; of those
    within the spread, whether no difference is more than the last digit."""


class _Step(NamedTuple):
    """The losses of one step, of those starts that have it."""

    number: int
    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def both(self) -> tuple[float, ...]:
        return self.a + self.b

    @property
    def is_finite(self) -> bool:
        return all(map(_is_finite, self.both))

    @property
    def size(self) -> float:
        return max(map(abs, self.both))

    def is_alike(self, room: float) -> bool:
        """Whether no two losses are further apart than that, by how floats subtract."""
        return self.is_finite and max(self.both) - min(self.both) < 1.001 * room


class _Digits(NamedTuple):
    """What the losses are given with."""

    bits: int
    exponent: int
    """Decimal, of the last digit."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "_Digits":
        tops = (abs(one.as_integer_ratio()[0]) for one in values)
        bits = (top.bit_length() - ((top & -top).bit_length() - 1) for top in tops if top)
        # repr has the fewest decimals that tell a float from its neighbours
        exponents = (int(Decimal(repr(one)).normalize().as_tuple().exponent) for one in values)
        return cls(max(bits, default=1), min(exponents, default=0))

    def last(self, size: float) -> float:
        """Return what the last digit of a loss of this size is worth."""
        return float(max(ldexp(1, frexp(size)[1] - self.bits), 10.0**self.exponent))


def compare_losses(
    a: Sequence[Mapping[int, float]], b: Sequence[Mapping[int, float]]
) -> LossesFound | None:
    """Take the loss by step of each start. None if there is no step, or nothing shows a spread."""
    found = [*_steps(a, b)]
    differing = [one for one in found if not _is_one(one.both)]
    if not found:
        return None
    if not differing:
        return LossesFound(kind="identical", steps=len(found))
    is_repeated = any(len(one.a) > 1 or len(one.b) > 1 for one in found)
    is_alike = all(_is_one(one.a) and _is_one(one.b) for one in found)
    digits = _Digits.of([value for one in found for value in one.both if _is_finite(value)])
    if not (is_repeated and is_alike):
        return _against_spread(found, digits)
    if all(one.is_alike(digits.last(one.size)) for one in differing):
        return LossesFound(kind="within spread", steps=len(found), is_rounding=True)
    return _moved(len(found), differing)


def sentence(found: LossesFound | None) -> str:
    if found is None:
        return NOT_COMPARED
    if found.kind == "identical":
        return f"losses identical over {fmt.steps(found.steps)}"
    if found.kind == "within spread":
        if found.is_rounding:
            return f"losses alike to their last digit over {fmt.steps(found.steps)}"
        return f"losses within the spread of each side's own starts over {fmt.steps(found.steps)}"
    if found.kind == "not known":
        return "losses not known to be the same: a side's own starts differ too much"
    by = "no longer finite on one side"
    if found.change is not None:
        by = f"by up to {fmt.significant(100 * abs(found.change))} %"
    at_first = ", at first by no more than rounding" * found.is_rounding
    return f"losses moved from step {found.from_step} on ({by}{at_first})"


def _steps(a: Sequence[Mapping[int, float]], b: Sequence[Mapping[int, float]]) -> Iterator[_Step]:
    known = {*chain.from_iterable(a)} & {*chain.from_iterable(b)}
    for number in sorted(known)[:MOST_STEPS]:
        sides = (tuple(one[number] for one in side if number in one) for side in (a, b))
        yield _Step(number, *sides)


def _moved(count: int, moved: Sequence[_Step]) -> LossesFound:
    first, changes = moved[0], [_change(one) for one in moved if one.is_finite]
    return LossesFound(
        kind="moved",
        steps=count,
        from_step=first.number,
        change=max(changes, key=abs) if len(changes) == len(moved) else None,
        is_rounding=first.is_alike(ROUNDING_UNITS * FLOAT32_UNIT * first.size),
    )


def _against_spread(found: Sequence[_Step], digits: _Digits) -> LossesFound | None:
    level = 1 - FALSE_ALARMS / len(found)
    spread_a = spread_b = 0.0  # variances
    means: list[float] = []
    moved: list[_Step] = []
    known = compared = 0
    for count, step in enumerate(found, 1):
        if not step.is_finite:
            kinds = [{*map(_kind, side)} for side in (step.a, step.b)]
            if any(len(one) > 1 for one in kinds):
                break  # own starts that differ by more than any number have no spread
            if kinds[0] != kinds[1]:
                moved.append(step)
            continue
        spread_a, spread_b = max(spread_a, _variance(step.a)), max(spread_b, _variance(step.b))
        degrees = len(step.both) - 2
        if degrees < 1:
            continue
        compared = count
        pooled = ((len(step.a) - 1) * spread_a + (len(step.b) - 1) * spread_b) / degrees
        error = sqrt(max(pooled, digits.last(step.size) ** 2) * (1 / len(step.a) + 1 / len(step.b)))
        half = student_t(degrees, level) * error
        if abs(_mean(step.b) - _mean(step.a)) > half:
            moved.append(step)
        means.append(_mean(step.both))
        if half < max(means) - min(means):
            known = count
    if moved:
        return _moved(len(found), moved)
    if not compared:
        return None
    return LossesFound(kind="within spread" if known else "not known", steps=known or compared)


def _change(step: _Step) -> float:
    a, b = _mean(step.a), _mean(step.b)
    return (b - a) / (abs(a) or abs(b))


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return fsum((one - mean) ** 2 for one in values) / max(len(values) - 1, 1)


def _is_finite(value: float) -> bool:
    return isfinite(value) and abs(value) < LARGEST


def _kind(value: float) -> float | None:
    return 0.0 if _is_finite(value) else _as_key(value)


def _is_one(values: Sequence[float]) -> bool:
    return len({*map(_as_key, values)}) == 1


def _as_key(value: float) -> float | None:
    return None if isnan(value) else value  # NaN is no other NaN
