"""The throughput chart over the common time axis."""

from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise, repeat

from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.present.axes import (
    TimeRange,
    bins_of,
    cut,
    highest,
    value_at,
)
from gpudash.present.cells import LEVELS, Cell, CellRow, Parts, cell
from gpudash.present.columns import column_rows
from gpudash.present.curves import LEAST_ROWS, curves, in_stretches
from gpudash.present.throughput import (
    EIGHTHS,
    columns_of,
    compared_in,
    drawn_columns,
    label_in,
    nothing,
    scale_of,
    side_at,
    side_of,
    throughput,
)
from gpudash.snapshot import Snapshot, is_live
from gpudash.tui.bars import button
from gpudash.tui.widgets.panel import (
    GUTTER,
    Frame,
    TimePanel,
    ends_of,
    gutter_of,
    moment_cell,
)

LEAST_BANDED = 6
"""Rows from which one shows the sides of an A/B."""
NEW_S = 2.0
"""The newest part of a curve, in seconds: it is in full colour."""
MARKER = "┊"
SIDES: Parts = ((" " * (GUTTER - 4), ""), ("A", "a"), ("/", "faint"), ("B", "b"), (" ", ""))
"""The text before the band, in the colours of both sides."""


class ThroughputChart(TimePanel):
    """The chart of samples/s over time."""

    def shown_of(self, snapshot: Snapshot) -> tuple[object, ...]:
        return (
            *(throughput(snapshot), snapshot.steps_per_s, snapshot.series, snapshot.markers),
            *(snapshot.blocks, is_live(snapshot), nothing(snapshot)),
        )

    # ── frame ───────────────────────────────────────────────────────────────────────────

    def frame(self) -> Frame:
        snapshot, view = self._snapshot, self.view
        live = is_live(snapshot)
        follow = button("live" if live else "newest", "screen.freeze", rank=4)
        keys = () if view.end_s is None else (follow,)
        unit = cell(f"²{throughput(snapshot).unit}", "strong")
        return (unit,), (*keys, *self._values())

    def _values(self) -> Iterator[Cell]:
        """Yield what was measured at the cursor; the newest rate is the answer's."""
        snapshot, at_s, rate = self._snapshot, self.view.moment_s, throughput(self._snapshot)
        if at_s is None:
            return
        yield moment_cell(self.view, snapshot)
        if side := side_at(snapshot.blocks, at_s):
            yield cell(side.upper(), side, rank=2)
        if rate.unit != "steps/s":
            steps = value_at(snapshot.series, "steps_per_s", at_s)
            yield cell(f"{fmt.significant(steps)} steps/s", "dim", rank=3)
        yield cell(fmt.significant(value_at(snapshot.series, rate.name, at_s)), "strong")

    # ── body ────────────────────────────────────────────────────────────────────────────

    def body(self, width: int, height: int) -> Iterator[Parts]:
        snapshot = self._snapshot
        at_s, values = snapshot.series.at_s, throughput(snapshot).values
        gutter, time_range = gutter_of(width), self.range_in(width)
        runs = cut(values, bins_of(at_s, time_range), time_range, at_s)
        if not runs:
            yield from repeat((), height // 2)
            yield ((fmt.clip(nothing(snapshot), width).center(width), "faint"),)
            return
        marked = columns_of(snapshot.markers, time_range)
        compared = compared_in(snapshot.blocks, time_range)
        drawn = height >= LEAST_ROWS  # with a time axis of its own
        named = bool(marked) if drawn else height >= 4
        banded = height >= LEAST_BANDED and bool(compared)
        rows = height - named - banded
        top = scale_of(runs, snapshot.markers)
        inks, marks = self._inks_in(compared, time_range), self.marks_in(time_range)
        if drawn:
            lines = in_stretches(runs, inks, time_range)
            yield from curves(lines, top, time_range, rows, gutter, marks)
        else:
            columns = drawn_columns(runs, inks, top, time_range, rows)
            is_cut = highest(runs) > top
            yield from column_rows(columns, top, time_range, rows, gutter, marks, is_cut=is_cut)
        if banded:
            yield (*(SIDES if gutter else ()), *self._band(compared, time_range.columns))
        if named:
            ends = ("", "") if drawn else ends_of(time_range, self.view, live=is_live(snapshot))
            yield ((" " * gutter, ""), *_foot(marked, time_range.columns, ends))

    def _inks_in(self, compared: Mapping[int, float | None], time_range: TimeRange) -> list[str]:
        """Return the ink of each column: what is new or compared is loud, a steady rate is not."""
        columns = time_range.columns
        new = -(-NEW_S // time_range.bin_s) if self.view.end_s is None else columns
        inks = ["rate" if x >= columns - new else "past" for x in range(columns)]
        for x, share_b in compared.items():  # of both sides, or of none
            inks[x] = side_of(share_b) or "idle"
        return inks

    def _band(
        self, compared: Mapping[int, float | None], columns: int
    ) -> Iterator[tuple[str, str]]:
        """Yield the side of an A/B in each column: its letter, or B's share if both ran."""
        for share_b, group in groupby(map(compared.get, range(columns))):
            width = sum(1 for _ in group)
            if share_b is None:
                yield " " * width, ""
            elif side := side_of(share_b):
                yield side.upper() * width, f"fill-{side}"
            else:
                yield LEVELS[round(EIGHTHS * share_b) - 1] * width, "fill-b/fill-a"


def _foot(marked: Mapping[int, str], columns: int, ends: tuple[str, str]) -> Parts:
    """Return the names of changes and, where they leave room, the chart's two ends."""
    row = CellRow(columns)
    for at, until in pairwise([*sorted(marked), columns + 1]):
        label = label_in(fmt.plain(marked[at]), until - at - 2)
        row.put(at, MARKER, "faint")
        row.put(at + 1, label if cell_len(label) == len(label) else "", "dim")
    begin, end = ends
    for at, text in ((columns - len(end), end), (0, begin)):
        if row.is_free(max(at - 1, 0), min(at + len(text) + 1, columns)):
            row.put(at, text, "faint")
    return row.parts
