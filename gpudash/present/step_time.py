"""The step time as stacked columns: pure functions from a snapshot to eighths of a row.

On one stream the phases add up to the step. On two they overlap: preparing is hidden while
training runs, and only the rest of it makes the step longer. Time that no phase covers is idle.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, groupby
from math import inf
from typing import NamedTuple, TypeAlias

import msgspec

from gpudash import format as fmt
from gpudash.diagnosis.lanes import look
from gpudash.present.axes import means, nice_ceiling
from gpudash.present.cells import BLOCKS, Cell, fitting
from gpudash.present.columns import BLANK, IDLE, ColumnCell
from gpudash.snapshot import Marker, Series, Snapshot

EIGHTHS = 8
"""Parts of a row that block characters can fill."""
HALF = EIGHTHS // 2
WARMUP_TICKS = 5
"""Ticks after the begin and after each marker that do not set the scale."""
UNNAMED = 0.004
"""Share of the step up to which a part is invisible, and left out of the legend."""

Column: TypeAlias = tuple[tuple[str, int], ...]
"""The stacked parts, from below: ink and height in eighths of a row."""


class StepPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the step time."""

    metric: str
    label: str
    short: str
    ink: str
    hides: bool = False
    """Whether it may be hidden: it runs beside the training, on its own stream."""


class _Spent(NamedTuple):
    """The step time by part, in ms."""

    shown: tuple[float, ...]
    """They add up to the step time, if all parts were measured in the same steps."""
    hidden: tuple[float, ...]


def parts_of(snapshot: Snapshot) -> tuple[StepPart, ...]:
    """Return the parts of a step: data wait, phases, the step if no phase is known, the rest."""
    parts = [StepPart(metric="data_ms", label="data", short="data", ink="line-0")]
    for index, phase in enumerate(snapshot.phases):
        label = fmt.plain(phase.label)
        hue, short = look(phase.name, label, index)
        part = StepPart(
            metric=f"{phase.name}_ms",
            label=label,
            short=short,
            ink=f"line-{hue}",
            hides=phase.lane == "prepare",
        )
        parts.append(part)
    on_device = snapshot.device is not None and snapshot.device.kind == "cuda"
    rest = "idle" if on_device else "other"
    return (
        *parts,
        StepPart(metric="step_ms", label="step", short="step", ink="rate"),
        StepPart(metric="", label=rest, short=rest, ink=IDLE),
    )


def spent(
    parts: Sequence[StepPart],
    step_ms: float | None,
    overlap_ms: float | None,
    data_ms: float | None,
    *phases_ms: float | None,
) -> _Spent | None:
    """Count the wait for data only where no phase covers it, as a host that is ahead may wait."""
    if step_ms is None:
        return None
    if all(ms is None for ms in phases_ms):  # no phase is known
        nothing = (0.0,) * (len(phases_ms) + 1)
        return _Spent((*nothing, step_ms, 0.0), (*nothing, 0.0, 0.0))
    phases = [(part.hides, ms or 0.0) for part, ms in zip(parts[1:], phases_ms, strict=False)]
    prepared_ms = sum(ms for hides, ms in phases if hides)
    share = min((overlap_ms or 0.0) / prepared_ms, 1.0) if prepared_ms > 0 else 0.0
    hidden_ms = [share * ms if hides else 0.0 for hides, ms in phases]
    shown_ms = [ms - under for (_, ms), under in zip(phases, hidden_ms, strict=True)]
    rest_ms = max(step_ms - sum(shown_ms), 0.0)
    waited_ms = min(data_ms or 0.0, rest_ms)
    return _Spent((waited_ms, *shown_ms, 0.0, rest_ms - waited_ms), (0.0, *hidden_ms, 0.0, 0.0))


def columns_of(
    series: Series, parts: tuple[StepPart, ...], stretches: Sequence[slice], top: float, rows: int
) -> list[tuple[ColumnCell, ...]]:
    """Return each column with its top row first."""
    times = (means(series.of(name), series.at_s, stretches) for name in metrics_of(parts))
    column = _columns(parts, top, rows)
    return [column(*of_one) for of_one in zip(*times, strict=True)]


def metrics_of(parts: Sequence[StepPart]) -> tuple[str, ...]:
    return ("step_ms", "overlap_ms", *(part.metric for part in parts[:-2]))


@lru_cache(maxsize=4)
def _columns(
    parts: tuple[StepPart, ...], top: float, rows: int
) -> Callable[..., tuple[ColumnCell, ...]]:
    """Cache columns, as most only scroll."""
    inks = [part.ink for part in parts]

    @lru_cache(maxsize=1024)
    def column(*times_ms: float | None) -> tuple[ColumnCell, ...]:
        step = spent(parts, *times_ms)
        return blocks_of(column_of(inks, step, top, rows), rows) if step else (BLANK,) * rows

    return column


def top_ms(
    series: Series,
    stretches: Sequence[slice],
    markers: Iterable[Marker],
    now_ms: float | None,
) -> float:
    """Return the end of the axis: above the 95th percentile of step times, and above `now_ms`.

    The first steps of a run and after each marker take many times as long as others: they count
    only if there are no others. A step over many ticks, as in a hang, counts once.
    """
    steps_ms, steps_per_s = series.of("step_ms"), series.of("steps_per_s")
    shown = range(stretches[0].start, stretches[-1].stop) if stretches and steps_ms else ()
    measured = {index: ms for index in shown if (ms := steps_ms[index]) is not None and ms < inf}
    first = next((index for index, ms in enumerate(steps_ms) if ms is not None), 0)
    begins = (first, *(bisect_right(series.at_s, marker.at_s) for marker in markers))
    cold = {index for begin in begins for index in range(begin, begin + WARMUP_TICKS)}

    def steps_of(tick: int) -> float:
        """Limit the steps to 1: a tick of fast steps must not weigh more."""
        rate = steps_per_s[tick] if steps_per_s else None
        return 1.0 if rate is None else min(rate * series.tick_s, 1.0)

    usual = sorted((measured[tick], steps_of(tick)) for tick in measured.keys() - cold or measured)
    reached = [*accumulate(steps for _, steps in usual)]
    p95_ms = usual[bisect_left(reached, 0.95 * reached[-1])][0] if usual else 0.0
    return nice_ceiling(max(p95_ms, now_ms or 0.0))


def column_of(inks: Sequence[str], step: _Spent, top: float, rows: int) -> Column:
    """Cut the parts at the top; rounding one part does not move the others."""
    eighths, parts = rows * EIGHTHS, []
    reached_ms, height = 0.0, 0
    for ink, ms in zip(inks, step.shown, strict=True):
        reached_ms += ms
        end = round(min(reached_ms / top, 1.0) * eighths)
        if end > height:
            parts.append((ink, end - height))
            height = end
    return tuple(parts)


def blocks_of(column: Column, rows: int) -> tuple[ColumnCell, ...]:
    eighths = [number for number, (_, height) in enumerate(column) for _ in range(height)]
    blocks = []
    for begin in range(0, len(eighths), EIGHTHS):
        parts = groupby(eighths[begin : begin + EIGHTHS])
        blocks.append(_block(tuple((column[number][0], len([*same])) for number, same in parts)))
    return (*(BLANK,) * (rows - len(blocks)), *reversed(blocks))


@lru_cache(maxsize=1024)
def _block(inside: Column) -> ColumnCell:
    """Leave out the smallest of three parts, as a cell has at most two colours."""
    hues = [part for part in inside if part[0] != IDLE]
    filled = sum(height for _, height in hues)
    if not hues:
        return ("·", IDLE) if sum(height for _, height in inside) >= HALF else BLANK
    if filled < EIGHTHS or len(hues) == 1:
        return BLOCKS[filled], max(hues, key=lambda hue: hue[1])[0]
    while len(hues) > 2:
        hues.remove(min(hues, key=lambda hue: hue[1]))
    (lower, low), (upper, high) = hues
    level = min(max(round(EIGHTHS * low / (low + high)), 1), 7)
    return BLOCKS[level], f"{lower}/{upper}"


def legend(parts: Sequence[StepPart], step: _Spent, width: int) -> list[Cell]:
    """Choose the longest form that fits; if none does, leave out the smallest parts."""
    least_ms = UNNAMED * sum(step.shown)
    longest_first = sorted(step.shown, reverse=True)
    shown = [one for one in zip(parts, step.shown, strict=True) if one[1] > least_ms]
    hidden = [one for one in zip(parts, step.hidden, strict=True) if one[1] > least_ms]

    def entry(mark: str, ink: str, name: str, ms: float, rank: int) -> Cell:
        time = f" {fmt.milliseconds(ms)}"
        return Cell(parts=((f"{mark} ", ink), (name, "dim"), (time, "text")), rank=rank)

    fits: list[Cell] = []
    for word, name in (("hidden by overlap:", "label"), ("hidden:", "short"), ("", "short")):
        entries = []
        for part, ms in shown:
            mark, rank = "·" if part.ink == IDLE else "█", longest_first.index(ms)
            entries.append(entry(mark, part.ink, getattr(part, name), ms, rank))
        for part, ms in hidden if word else ():
            entries.append(entry(f"· {word}", "dim", getattr(part, name), ms, len(parts)))
        fits = fitting(entries, width)
        if len(fits) == len(entries):
            break
    return fits
