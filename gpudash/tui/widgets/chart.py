"""A chart: legend, y axes, lines, markers of lever changes, time axis.

plotext draws the lines; everything around them is painted here in fixed widths. The lines
are drawn again only when their data or the size has changed.
"""

import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise, repeat
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style

from gpudash import format as fmt
from gpudash.metrics import Side
from gpudash.tui.axes import (
    Runs,
    TimeRange,
    axis_top,
    bins_of,
    cut,
    highest,
    time_range_of,
    time_ticks,
    usual_highest,
)
from gpudash.tui.charts import ChartData, ChartLine
from gpudash.tui.widgets.painted import Painted, Row, width_of

if TYPE_CHECKING:
    from gpudash.tui.plot import Canvas

GUTTER = 6
"""Columns of a y axis: five for its numbers and one for its line."""
MIN_PLOT_WIDTH = 8
LEGEND_ROWS = 2
MARKER = -1
"""Beside the indices of lines, in a cell of the plot."""


class Chart(Painted):
    """One chart of a snapshot."""

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id, classes="chart")
        self.data = ChartData(title=id)
        self._can_draw = False
        self._drawn: tuple[object, Canvas] | None = None

    def show(self, data: ChartData) -> None:
        """Take new data; nothing is painted where nothing changed."""
        if data != self.data:
            self.data = data
            self.repaint()

    def allow_drawing(self) -> None:
        """Paint lines from now on: plotext has been imported."""
        self._can_draw = True
        self.repaint()

    def on_resize(self) -> None:
        """Have the other charts drawn again: all are as wide as the narrowest."""
        for chart in self.siblings:
            if isinstance(chart, Chart):
                chart.redraw()

    def rows(self, width: int, height: int) -> Iterator[Row]:
        """Yield legend, note, plot and time axis, as many as there is room for."""
        head = self._head(width, min(LEGEND_ROWS, max(height - 3, 1)))
        head += self._note(width, 2 if height >= 8 else 1 if height - len(head) >= 3 else 0)
        yield from head[:height]
        plot_height = height - len(head) - 1
        if plot_height >= 1:
            yield from self._body(width, plot_height)

    # ── legend ──────────────────────────────────────────────────────────────────────────

    def _head(self, width: int, at_most: int) -> list[Row]:
        """Return the title and the legend: on one row if they fit, in full if they can be."""
        rows: list[Row] = []
        for room in range(1, at_most + 1):
            for entry in (self._entry, self._short_entry):
                rows, complete = self._flow(map(entry, self.data.lines), width, room)
                if complete:
                    return rows
        return rows

    def _note(self, width: int, at_most: int) -> list[Row]:
        """Return the note, wrapped into `at_most` rows; the device panel has all of it."""
        note = " ".join(fmt.plain(self.data.note).split())
        lines = textwrap.wrap(note, max(width - 2, 10), max_lines=max(at_most, 1), placeholder=" …")
        return [[Segment(f" {line}", self.ink("busy"))] for line in lines[:at_most]]

    def _flow(self, entries: Iterable[Row], width: int, at_most: int) -> tuple[list[Row], bool]:
        """Return the title and the entries in `at_most` rows, and whether all had room."""
        rows: list[Row] = [[Segment(fmt.clip(self.data.title, width), self.ink("strong"))]]
        for entry in entries:
            if width_of(rows[-1]) + width_of(entry) > width:
                if len(rows) == at_most:
                    return rows, False
                rows.append([])
            rows[-1] += entry
        return rows, True

    def _entry(self, line: ChartLine) -> Row:
        return [
            Segment("  "),
            Segment("━ ", self._colour(line)),
            Segment(f"{line.label} "),
            Segment(line.value, self.ink("strong")),
        ]

    def _short_entry(self, line: ChartLine) -> Row:
        return [
            Segment(f" {line.short or line.label} ", self._colour(line)),
            Segment(line.value, self.ink("strong")),
        ]

    def _colour(self, line: ChartLine) -> Style:
        return self.ink(f"line-{line.colour}")

    # ── plot ────────────────────────────────────────────────────────────────────────────

    def _body(self, width: int, height: int) -> Iterator[Row]:
        gutter, columns = self._columns(width)
        time_range = time_range_of(self.data.at_s, self.data.tick_s, columns)
        bins = bins_of(self.data.at_s, time_range)
        runs = {
            line.label: cut(line.values, bins, time_range)
            for line in sorted(self.data.lines, key=lambda line: line.colour)
        }
        if not any(runs.values()) or not self._can_draw:
            yield from self._empty_plot(width, height)
            return
        sides: tuple[Side, Side] = ("left", "right")
        tops = {side: self._top(side, runs) for side in sides}
        canvas = self._canvas(runs, tops, time_range, columns, height)
        cut_off = any(
            highest(run) > tops["left"] for run in runs.values() if self.data.cuts_outliers
        )
        has_right = gutter > 0 and self._measured_on("right")
        overlay = self._overlay(canvas, time_range, columns)
        for y, row in enumerate(overlay):
            yield [
                *(self._axis("left", y, height, tops["left"], cut=cut_off) if gutter else []),
                *row,
                *(self._axis("right", y, height, tops["right"]) if has_right else []),
            ]
        yield self._time_axis(time_range, gutter, columns)

    def _columns(self, width: int) -> tuple[int, int]:
        """Return the width of a y axis and of the plot between two of them.

        The same for every chart on screen, as wide as the narrowest: they share the time axis.
        """
        narrowest = min([width, *(chart.size.width for chart in self.siblings if chart.display)])
        gutter = GUTTER if narrowest >= MIN_PLOT_WIDTH + 2 * GUTTER else 0
        return gutter, narrowest - 2 * gutter

    def _measured_on(self, side: Side) -> bool:
        return any(
            line.side == side and any(fmt.is_measured(value) for value in line.values)
            for line in self.data.lines
        )

    def _empty_plot(self, width: int, height: int) -> Iterator[Row]:
        for y in range(height):
            text = fmt.clip(self.data.empty, width) if y == height // 2 else ""
            yield [Segment(text.center(width), self.ink("faint"))]

    def _top(self, side: Side, runs: dict[str, Runs]) -> float:
        on_side = [line.label for line in self.data.lines if line.side == side]
        highest_of = usual_highest if self.data.cuts_outliers else highest
        top = max((highest_of(runs[label]) for label in on_side), default=0.0)
        return axis_top(top, self.data.least_top.get(side, 0.0))

    def _canvas(
        self,
        runs: dict[str, Runs],
        tops: dict[Side, float],
        time_range: TimeRange,
        columns: int,
        height: int,
    ) -> "Canvas":
        from gpudash.tui.plot import Line, draw  # noqa: PLC0415  # 0.1 s, after the first paint

        side_of = {line.label: line.side for line in self.data.lines}
        key = (runs, tops, time_range, columns, height)
        if self._drawn is None or self._drawn[0] != key:
            lines = [Line(runs=cut_, top=tops[side_of[label]]) for label, cut_ in runs.items()]
            self._drawn = (key, draw(lines, time_range, columns, height))
        return self._drawn[1]

    # ── markers, axes ───────────────────────────────────────────────────────────────────

    def _overlay(self, canvas: "Canvas", time_range: TimeRange, columns: int) -> Iterator[Row]:
        """Yield the rows of the plot with the markers behind the lines."""
        lines = sorted(self.data.lines, key=lambda line: line.colour)
        styles: dict[int | None, Style | None] = dict(enumerate(map(self._colour, lines)))
        styles |= {MARKER: self.ink("dim"), None: None}
        marked = self._marked(time_range, columns)
        labels = self._labels(canvas, marked, columns) if self.data.name_markers else {}
        for y, cells in enumerate(canvas):
            row = list(cells)
            for x in marked:
                if row[x][1] is None:
                    row[x] = ("┊", MARKER)
            for x, text in labels.get(y, []):
                row[x : x + len(text)] = zip(text, repeat(MARKER), strict=False)
            yield [
                Segment("".join(map(itemgetter(0), group)), styles[index])
                for index, group in groupby(row, key=itemgetter(1))
            ]

    def _marked(self, time_range: TimeRange, columns: int) -> dict[int, str]:
        """Return column → label of the markers in the time_range; the last one in a column."""
        marked = {}
        for at in self.data.markers:
            if time_range.begin_s <= at.at_s < time_range.end_s:
                x = int((at.at_s - time_range.begin_s) / time_range.length_s * columns)
                marked[min(x, columns - 1)] = at.label
        return marked

    def _labels(
        self, canvas: "Canvas", marked: dict[int, str], columns: int
    ) -> dict[int, list[tuple[int, str]]]:
        """Return row → (column, text) for the labels that cover neither line nor marker."""
        placed: dict[int, list[tuple[int, str]]] = {}
        for x, border in pairwise([*sorted(marked), columns]):
            text = f"{fmt.plain(marked[x])} "
            if not text.strip() or x + 1 + len(text) > border:
                continue
            for y, cells in enumerate(canvas):
                if all(index is None for _, index in cells[x : x + 1 + len(text)]):
                    placed.setdefault(y, []).append((x + 1, text))
                    break
        return placed

    def _axis(self, side: Side, y: int, height: int, top: float, *, cut: bool = False) -> Row:
        """Return one row of a y axis: numbers at both ends, and in the middle if it is far.

        `cut` says that values go beyond it.
        """
        last = height - 1
        at = {0: top, last: 0.0} if height > 1 else {0: top}
        if height >= 5 and height % 2:
            at[height // 2] = top / 2
        text = fmt.compact(at[y]) if y in at else ""
        frame = self.ink("faint")
        if side == "left":
            tick = "↑" if cut and y == 0 else "┤" if text else "│"
            return [Segment(f"{text:>5}{tick}", frame)]
        return [Segment(f"{'├' if text else '│'}{text:<5}", frame)]

    def _time_axis(self, time_range: TimeRange, left: int, columns: int) -> Row:
        """Return the last row: round moments, in seconds since the run began."""
        cells = [" "] * (left + columns + 1)
        for at_s in time_ticks(time_range, columns):
            label = f"{at_s:.0f}s"
            x = left + round((at_s - time_range.begin_s) / time_range.length_s * columns)
            x = min(max(x - len(label) // 2, 0), len(cells) - len(label))
            if x >= 0 and all(cell == " " for cell in cells[max(x - 1, 0) : x + len(label) + 1]):
                cells[x : x + len(label)] = label
        return [Segment("".join(cells), self.ink("faint"))]
