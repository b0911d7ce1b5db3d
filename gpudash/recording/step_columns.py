"""Steps as a log has them: column by column, in whole numbers of small units.

An hour at 300 steps/s is a million steps. A record for each is 150 MB of JSON, mostly names and
digits that no clock has; in columns they are 30 MB. Only those digits are lost, and a session
rounds its steps alike as they come: what it shows and writes is exactly what the log tells.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import add
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from gpudash.protocol.training import Progress, Step

PER_MS, PER_US, PER_S = 10_000, 10, 1_000_000
"""Units of a log: 0.1 µs in a step's time, and likewise in its other values; 1 µs in a moment."""
MOST = 1 << 53
"""Bound of the whole numbers that a float holds exactly."""
Whole: TypeAlias = Annotated[int, Meta(ge=-MOST, le=MOST)]
Natural: TypeAlias = Annotated[int, Meta(ge=0, le=MOST)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=MOST)]
Value: TypeAlias = Annotated[int, Meta(ge=-PER_MS, le=MOST)]
"""A difference of two clocks may be negative: by as much as they are off."""
Amounts: TypeAlias = Natural | tuple[Natural, ...] | dict[Natural, Natural] | None
"""What all steps share, or one for each, or those of some by their place; so are others here."""


class StepColumns(msgspec.Struct, frozen=True, array_like=True):
    """The steps of a report, of which there is at least one."""

    step_ms: tuple[Value, ...]
    after_step: Whole
    """The step before the first one."""
    began_us: Whole
    """When the first one began."""
    values: dict[str, Value | tuple[Value, ...] | dict[Natural, Value]] = {}
    breaks_us: Whole | tuple[Whole, ...] = 0
    """From the end of the step before, or the begin, to the begin of each."""
    skipped: Whole | tuple[Whole, ...] = 0
    """Numbers between the step before and each."""
    segment: Natural | tuple[Natural, ...] = 0
    count: Positive | tuple[Positive, ...] = 1
    samples: Amounts = None
    tokens: Amounts = None
    parts_ms: dict[Natural, dict[str, tuple[float, ...]]] = {}
    """Those of some steps by their place."""


def columns_of(steps: Sequence[Step]) -> StepColumns | None:
    """Return None for no steps."""
    if not steps:
        return None
    counts = [step.count for step in steps]
    step_ms = [_whole(step.step_ms, PER_MS) for step in steps]
    after_step, skipped = _gaps([step.step for step in steps], counts)
    ends_us = [_whole(step.finished_s, PER_S) for step in steps]
    began_us, breaks_us = _gaps(ends_us, _lasted_us(counts, step_ms))
    names = dict.fromkeys(name for step in steps for name in step.values)
    return StepColumns(
        step_ms=tuple(step_ms),
        after_step=after_step,
        began_us=began_us,
        values={name: _column([_value(step, name) for step in steps]) for name in names},
        breaks_us=_column(breaks_us),
        skipped=_column(skipped),
        segment=_column([step.segment for step in steps]),
        count=_column(counts),
        samples=_column([step.samples for step in steps]),
        tokens=_column([step.tokens for step in steps]),
        parts_ms={place: step.parts_ms for place, step in enumerate(steps) if step.parts_ms},
    )


def steps_of(columns: StepColumns | None) -> tuple[Step, ...]:
    """Raise ValueError for columns that do not fit together."""
    return () if columns is None else tuple(_steps(columns))


def rounded(report: Progress) -> Progress:
    """Return it without digits that no clock has: a log has none of them."""
    steps = tuple(map(_rounded, report.steps))
    return replace(report, steps=steps, instruments_ms=round(report.instruments_ms, 4))


def _rounded(step: Step) -> Step:
    return replace(
        step,
        finished_s=round(step.finished_s, 6),
        step_ms=round(step.step_ms, 4),
        values={name: round(value, 4) for name, value in step.values.items()},
    )


def _steps(columns: StepColumns) -> Iterator[Step]:
    size = len(columns.step_ms)
    counts = _each(columns.count, size)
    numbers = _ends(columns.after_step, counts, _each(columns.skipped, size))
    lasted_us = _lasted_us(counts, columns.step_ms)
    ends_us = _ends(columns.began_us, lasted_us, _each(columns.breaks_us, size))
    if min(numbers, default=0) < 0:
        raise ValueError("a step before the first one")
    values: list[dict[str, float]] = [{} for _ in range(size)]
    for name, column in columns.values.items():
        for place, value in _items(column, size):
            values[place][name] = value / PER_MS
    segments, *amounts = (
        _each(column, size) for column in (columns.segment, columns.samples, columns.tokens)
    )
    each = zip(numbers, segments, ends_us, columns.step_ms, values, counts, *amounts, strict=True)
    for place, (number, segment, end_us, ms, of_step, count, samples, tokens) in enumerate(each):
        yield Step(
            step=number,
            segment=segment,
            finished_s=end_us / PER_S,
            step_ms=ms / PER_MS,
            values=of_step,
            count=count,
            samples=samples,
            tokens=tokens,
            parts_ms=columns.parts_ms.get(place, {}),
        )


def _whole(value: float, scale: int) -> int:
    """Return 0 for what is no number, or no time."""
    scaled = value * scale
    return round(scaled) if -MOST < scaled < MOST else 0


def _value(step: Step, name: str) -> int | None:
    return _whole(step.values[name], PER_MS) if name in step.values else None


def _lasted_us(counts: Sequence[int], step_ms: Sequence[int]) -> list[int]:
    return [min(count * ms // PER_US, MOST) for count, ms in zip(counts, step_ms, strict=True)]


def _gaps(ends: Sequence[int], lengths: Sequence[int]) -> tuple[int, list[int]]:
    """Return the first begin, and the gap before each stretch with these ends and lengths."""
    begins = [end - length for end, length in zip(ends, lengths, strict=True)]
    return begins[0], [begin - end for begin, end in zip(begins, [begins[0], *ends], strict=False)]


def _ends(began: int, lengths: Sequence[int], gaps: Sequence[int]) -> list[int]:
    return [*accumulate(map(add, lengths, gaps), initial=began)][1:]


def _column(values: list[Any]) -> Any:
    if all(one == values[0] for one in values):
        return values[0]
    if None in values:
        return {place: one for place, one in enumerate(values) if one is not None}
    return tuple(values)


def _items(column: Any, size: int) -> Iterable[tuple[int, Any]]:
    if isinstance(column, dict):
        return column.items()
    return zip(range(size), _each(column, size), strict=True)


def _each(column: Any, size: int) -> Sequence[Any]:
    if isinstance(column, dict):
        return [column.get(place) for place in range(size)]
    return column if isinstance(column, tuple) else (column,) * size
