"""A profile's summary and its changes since the previous profile: their rows, and their widget."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from gpudash import format as fmt
from gpudash.trace.compare import compare
from gpudash.trace.summary import IdleCause, Summary
from gpudash.trace.text import comparison_lines, summary_lines
from gpudash.tui.cells import Cell, Parts, fitted, fitting
from gpudash.tui.widgets.painted import Scrolled

MOST = 30
"""Most lines of a table, which can be scrolled."""
IDLE: dict[IdleCause, tuple[str, str]] = {
    "host": ("nothing launched", "operator"),
    "stream": ("another stream", "copy"),
    "communication": ("communication", "collective"),
    "other": ("unknown", "runtime"),
}
"""Cause of idle time → words, and the hue (of a timeline's events)."""


def summary_rows(summary: Summary, width: int) -> Iterator[Parts]:
    """Yield the device time of a step as a bar, then all numbers."""
    if summary.on_device:
        yield from _bar(summary, width - 2)
        yield ()
    yield from _rows(summary_lines(summary, MOST), width)


def change_rows(before: Summary, after: Summary, width: int) -> Iterator[Parts]:
    """Yield the changes from one profile to the next."""
    yield from _rows(comparison_lines(compare(before, after), MOST), width)


def _rows(lines: Iterable[str], width: int) -> Iterator[Parts]:
    """Yield lines; the first one and those after a blank line are heads."""
    ink = "head"
    for line in lines:
        yield ((fitted(f" {line}", width), ink),)
        ink = "text" if line else "head"


def _bar(summary: Summary, width: int) -> Iterator[Parts]:
    """Yield the device time of a step as a bar, and its legend."""
    idle = [(*IDLE[cause], ms) for cause, ms in summary.idle_ms.items() if ms > 0]
    parts = [("busy", "kernel", summary.busy_ms or 0.0), *idle]
    whole_ms = sum(ms for *_, ms in parts) or 1.0
    until_ms, bar, legend = 0.0, [(" ", "text")], []
    for name, hue, ms in parts:
        begin, until_ms = round(until_ms / whole_ms * width), until_ms + ms
        columns = max(round(until_ms / whole_ms * width) - begin, 0)
        share = f" {fmt.percent(100 * ms / whole_ms)}"
        bar.append((f"{share if len(share) < columns else '':{columns}}", f"lit-{hue}"))
        legend.append(Cell(parts=(("  ", f"lit-{hue}"), (f" {name}", "dim"))))
    yield tuple(bar)
    kept = fitting(legend, width)
    yield ((" ", "text"), *(part for one in kept for part in (*one.parts, ("  ", "text"))))


Painter: TypeAlias = Callable[[int], Iterable[Parts]]
"""A function that returns all rows for a width."""
COPIED_COLUMNS = 120


class Tables(Scrolled):
    """Shows the rows of a painter."""

    def __init__(self) -> None:
        super().__init__(id="tables")
        self._painter: Painter = lambda _width: ()
        self._first = 0

    def show(self, painter: Painter) -> None:
        """Show a table from its first row on."""
        self._painter, self._first = painter, 0
        self.redraw()

    def scroll_rows(self, direction: int) -> None:
        """Scroll down by rows, or up if negative; not beyond the ends."""
        width, height = self.size
        beyond = sum(1 for _ in self._painter(width)) - height
        self._first = max(min(self._first + direction, beyond), 0)
        self.repaint()

    @property
    def text(self) -> str:
        """All rows as text to copy."""
        rows = self._painter(COPIED_COLUMNS)
        return "\n".join("".join(text for text, _ in row).rstrip() for row in rows)

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # the base cuts them
        """Yield the rows from the topmost visible one on."""
        yield from list(self._painter(width))[self._first :]
