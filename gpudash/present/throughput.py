"""Contents of the throughput chart: the curve's scale, labels and A/B blocks."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import ceil

import msgspec

from gpudash.present.axes import Runs, TimeRange, axis_top
from gpudash.present.cells import BLOCKS
from gpudash.present.columns import BLANK, ColumnCell
from gpudash.snapshot import (
    BlockShown,
    Marker,
    Snapshot,
    Values,
)

WARMUP_S = 2.5
"""Time after a change, five ticks, whose points do not set the scale."""
EIGHTHS = 8
"""Shares of a column that the eye can distinguish."""
SLIVER = 1e-6
"""Share of a column below which an overlap is a rounding error."""
LEAST_NAME = 4
"""Fewest columns for the beginning of a name."""


class Throughput(msgspec.Struct, frozen=True):
    """The rate that is drawn: samples/s, or steps/s if samples are not known."""

    unit: str
    now: float | None
    """Rate over the last few seconds."""
    values: Values
    """Values of the curve."""

    @property
    def name(self) -> str:
        return _metric(self.unit)


def _metric(unit: str) -> str:
    return unit.replace("/", "_per_")


def throughput(snapshot: Snapshot) -> Throughput:
    counted = snapshot.samples_per_s is not None or "samples_per_s" in snapshot.series.values
    samples = counted or not snapshot.total_steps
    unit = "samples/s" if samples else "steps/s"
    now = snapshot.samples_per_s if samples else snapshot.steps_per_s
    return Throughput(unit, now, snapshot.series.of(_metric(unit)))


def drawn_columns(
    runs: Runs, inks: Sequence[str], top: float, time_range: TimeRange, rows: int
) -> dict[int, list[ColumnCell]]:
    """Return column → its cells, with the top row first."""
    columns = {}
    for at_s, value in (point for run in runs for point in run):
        # what is measured is seen, however small
        height = max(round(min(max(value / top, 0.0), 1.0) * rows * EIGHTHS), 1)
        x = time_range.column_of(at_s)
        filled = (min(max(height - EIGHTHS * below, 0), EIGHTHS) for below in reversed(range(rows)))
        columns[x] = [(BLOCKS[one], inks[x]) if one else BLANK for one in filled]
    return columns


def nothing(snapshot: Snapshot) -> str:
    if snapshot.state not in ("starting", "switching", "training"):
        return "nothing measured"
    return f"waiting for the first {'half second' if snapshot.total_steps else 'step'}"


def scale_of(runs: Runs, markers: Iterable[Marker]) -> float:
    """Return the end of the axis: above 95 % of the points between any two changes.

    The first points after a change are left out, unless there are no others. So a new level sets
    the scale at once, and a spike does not.
    """
    changes = sorted([0.0, *(marker.at_s for marker in markers)])
    levels: dict[int, list[float]] = {}
    every = [point for run in runs for point in run]
    for at_s, value in every:
        change = bisect_right(changes, at_s) - 1
        if at_s >= changes[change] + WARMUP_S:
            levels.setdefault(change, []).append(value)
    usual = [sorted(values)[ceil(0.95 * len(values)) - 1] for values in levels.values()]
    return axis_top(max(usual or (value for _, value in every), default=0.0))


def columns_of(markers: Iterable[Marker], time_range: TimeRange) -> dict[int, str]:
    """Return column → label; of a column's markers, it is the last one's."""
    return {
        time_range.column_of(one.at_s): one.label for one in markers if time_range.holds(one.at_s)
    }


def label_in(label: str, room: int) -> str:
    """Choose the longest form that fits: whole, values, or their beginning; no number is cut."""
    values = ", ".join(part.rpartition("=")[2] for part in label.split(", "))
    fitting = next((text for text in (label, values) if len(text) <= room), None)
    if fitting is not None:
        return fitting
    return "" if room < LEAST_NAME or any(map(str.isdigit, values)) else f"{values[: room - 1]}…"


def compared_in(blocks: Iterable[BlockShown], time_range: TimeRange) -> dict[int, float | None]:
    """Return column → side B's share of the time compared in it; columns without any are absent.

    None where no step counts.
    """
    bin_s, first = time_range.bin_s, time_range.first
    sides_s: dict[int, dict[str, float]] = {}
    for side, since_s, until_s in _stretches(blocks, time_range):
        for column in range(time_range.column_of(since_s), time_range.column_of(until_s) + 1):
            left_s = (first + column) * bin_s
            overlap_s = min(until_s, left_s + bin_s) - max(since_s, left_s if column else 0.0)
            of_column = sides_s.setdefault(column, {"a": 0.0, "b": 0.0, "": 0.0})
            of_column[side] += max(overlap_s, 0.0)
    least_s = SLIVER * bin_s
    return {
        column: of["b"] / compared_s if (compared_s := of["a"] + of["b"]) > least_s else None
        for column, of in sides_s.items()
        if sum(of.values()) > least_s
    }


def _stretches(
    blocks: Iterable[BlockShown], time_range: TimeRange
) -> Iterator[tuple[str, float, float]]:
    """Yield the side, begin and end of what is in the range; no side where no step counts."""
    for block in blocks:
        began_s = max(block.begin_s, time_range.begin_s)
        ended_s = time_range.end_s if block.end_s is None else min(block.end_s, time_range.end_s)
        counts_s = min(max(block.counts_s, began_s), ended_s)
        yield "", began_s, counts_s
        yield block.side, counts_s, ended_s


def side_of(share_b: float | None) -> str:
    """Return the side that took all of a column, to an eighth; empty if none did."""
    return "" if share_b is None else {0: "a", EIGHTHS: "b"}.get(round(EIGHTHS * share_b), "")


def side_at(blocks: Iterable[BlockShown], at_s: float) -> str:
    """Empty if neither side ran."""
    sides = (
        one.side
        for one in blocks
        if one.begin_s <= at_s and (one.end_s is None or at_s < one.end_s)
    )
    return next(sides, "")
