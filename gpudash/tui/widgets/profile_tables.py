"""Rows of the profile's summary, and of its changes since the previous profile."""

from collections.abc import Iterable, Iterator

from gpudash import format as fmt
from gpudash.trace.compare import compare
from gpudash.trace.summary import IdleCause, Summary
from gpudash.trace.text import comparison_lines, summary_lines
from gpudash.tui.cells import Cell, Parts, fitted, fitting

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
