"""The results table: one row per setting tried, the first one pinned as the yardstick.

Nothing in it is coloured as better or worse: rows are measured one after the other and differ
by several percent between equal settings too. What is proven is what a verdict says.
"""

from collections.abc import Iterator

import msgspec
from rich.segment import Segment

from gpudash import format as fmt
from gpudash.snapshot import Result
from gpudash.tui.widgets.painted import Row, Scrolled


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of numbers right of the configuration."""

    title: str
    width: int


NUMBERS = (
    Column(title="steps", width=9),
    Column(title="steps/s", width=8),
    Column(title="samples/s", width=10),
    Column(title="p50 ms", width=8),
    Column(title="p95 ms", width=8),
    Column(title="host ms", width=8),
    Column(title="util %", width=7),
    Column(title="ratio", width=8),
)
NUMBER_WIDTH = 4
MIN_CONFIGURATION = 26
"""Enough to tell the usual rows apart."""


def cells_of(result: Result, *, on_gpu: bool) -> dict[str, str]:
    """Return the numbers of a row as text, by the titles of `NUMBERS`."""
    device = result.util_pct if on_gpu else result.cpu_pct
    return {
        "steps": fmt.count(result.steps),
        "steps/s": fmt.significant(result.steps_per_s),
        "samples/s": fmt.significant(result.samples_per_s),
        "p50 ms": fmt.significant(result.step_ms_p50),
        "p95 ms": fmt.significant(result.step_ms_p95),
        "host ms": fmt.significant(result.host_ms),
        "util %": fmt.percent(device).removesuffix(" %"),
        "ratio": fmt.ratio(result.ratio),
    }


def columns_for(width: int) -> tuple[Column, ...]:
    """Return the columns a table of this width has room for: p95, host, steps go first."""
    columns = list(NUMBERS)
    for title in ("p95 ms", "host ms", "steps", "p50 ms", "util %", "samples/s"):
        if NUMBER_WIDTH + MIN_CONFIGURATION + sum(c.width for c in columns) <= width:
            break
        columns = [column for column in columns if column.title != title]
    return tuple(columns)


class ResultsTable(Scrolled):
    """The rows of a snapshot's results; the newest are in sight unless scrolled."""

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._results: tuple[Result, ...] = ()
        self._on_gpu = False
        self._hidden_below = 0

    def show(self, results: tuple[Result, ...], *, on_gpu: bool) -> None:
        """Take new rows; only rows that changed are painted."""
        if (results, on_gpu) != (self._results, self._on_gpu):
            self._results, self._on_gpu = results, on_gpu
            self.repaint()

    def scroll_rows(self, direction: int) -> None:
        """Show earlier (-1) or later (+1) rows."""
        limit = max(len(self._results) - max(self.size.height - 1, 1), 0)
        self._hidden_below = min(max(self._hidden_below - direction, 0), limit)
        self.repaint()

    def rows(self, width: int, height: int) -> Iterator[Row]:
        """Yield the head, the first row, and as many of the newest as there is room for."""
        columns = columns_for(width - 1)
        configuration = width - 1 - NUMBER_WIDTH - sum(column.width for column in columns)
        yield self._head(columns, configuration)
        if not self._results:
            yield [Segment("   one row per setting appears here", self.ink("faint"))]
            return
        first, *others = self._results
        yield self._row(first, columns, configuration)
        room = max(height - 2, 0)
        end = len(others) - min(self._hidden_below, max(len(others) - room, 0))
        shown = others[max(end - room, 0) : end]
        live = next((result for result in others if result.live), None)
        if shown and live is not None and live not in shown and end == len(others):
            shown[0] = live  # its verdicts would have pushed it out
        for result in shown:
            yield self._row(result, columns, configuration)

    def _head(self, columns: tuple[Column, ...], configuration: int) -> Row:
        device = "util %" if self._on_gpu else "CPU %"
        titles = [device if column.title == "util %" else column.title for column in columns]
        what = fmt.clip("configuration", configuration)
        text = f"{'#':>{NUMBER_WIDTH - 1}} {what:<{configuration}}"
        for title, column in zip(titles, columns, strict=True):
            text += f"{title:>{column.width}}"
        return [Segment(text, self.ink("head"))]

    def _row(self, result: Result, columns: tuple[Column, ...], configuration: int) -> Row:
        if result.verdict:
            text = fmt.clip(f"A/B {fmt.plain(result.configuration)}", self.size.width - 5)
            return [Segment(f"{' ' * NUMBER_WIDTH}{text}", self.ink("strong"))]
        style = self.ink("strong" if result.live else "text")
        number = f"{'▸' if result.live else ' '}{result.number:>{NUMBER_WIDTH - 2}} "
        what = fmt.clip(fmt.plain(result.configuration), configuration)
        row = [Segment(f"{number}{what:<{configuration}}", style)]
        cells = cells_of(result, on_gpu=self._on_gpu)
        for column in columns:
            text = f"{fmt.clip(cells[column.title], column.width - 1):>{column.width}}"
            row.append(Segment(text, style))
        return row
