"""The A/B panel: the interval closing in, a row for every few pairs."""

from collections.abc import Iterator

from rich.segment import Segment

from gpudash.snapshot import ComparisonShown
from gpudash.ui import format as fmt
from gpudash.ui.series import nice_ceiling
from gpudash.ui.widgets.painted import Painted, Row

LABEL_WIDTH = 9
"""Columns for the number of pairs."""


def scale_of(shown: ComparisonShown) -> float:
    """Return the change at the right end of the axis; the left end is its negative."""
    newest = shown.history[-1] if shown.history else (0.0, 0.0, 0.0)
    early = shown.history[len(shown.history) // 4] if shown.history else newest
    # the first intervals are wild: they may end beyond the axis
    return nice_ceiling(max(abs(end) for end in (*newest, early[0], early[2], 0.01)))


def interval_bar(low: float, change: float, high: float, scale: float, width: int) -> str:
    """Return an interval drawn on an axis from -scale to +scale, `│` at 0; `◂▸` are cut off."""

    def at(value: float) -> int:
        return round((value / scale + 1) / 2 * (width - 1))

    cells = [" "] * width
    cells[at(0)] = "│"
    first, last = at(max(low, -scale)), at(min(high, scale))
    for index in range(first, last + 1):
        cells[index] = "─"
    cells[first] = "├" if low >= -scale else "◂"
    cells[last] = "┤" if high <= scale else "▸"
    if abs(change) <= scale:
        cells[at(change)] = "●"
    return "".join(cells)


def sampled(count: int, rows: int) -> list[int]:
    """Return at most `rows` of `count` indices, evenly spread, the last one among them."""
    if rows <= 0 or count <= 0:
        return []
    if count <= rows:
        return list(range(count))
    return [round((index + 1) * count / rows) - 1 for index in range(rows)]


class ComparisonPanel(Painted):
    """Lies over the charts while a comparison runs, and after it until it is closed."""

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._shown: ComparisonShown | None = None

    def show(self, shown: ComparisonShown | None) -> None:
        """Take the newest state; only rows that changed are painted."""
        if shown != self._shown:
            self._shown = shown
            self.repaint()

    def rows(self, width: int, height: int) -> Iterator[Row]:
        """Yield the question, the axis, the intervals, and what is known."""
        shown = self._shown
        if shown is None:
            return
        question = f"A/B {shown.lever}: {shown.a} or {shown.b}?"
        pairs = f"{shown.pairs}/{shown.planned_pairs} pairs"
        yield [
            Segment(f"{fmt.clip(question, width - len(pairs) - 1)} ", self.ink("strong")),
            Segment(pairs, self.ink("dim")),
        ]
        room = max(width - LABEL_WIDTH - 1, 12)
        scale = scale_of(shown)
        yield [Segment(" " * LABEL_WIDTH + axis(scale, room), self.ink("dim"))]
        for index in sampled(len(shown.history), height - 4):
            low, change, high = shown.history[index]
            newest = index == len(shown.history) - 1
            bar = interval_bar(low, change, high, scale, room)
            label = f"{index + 2:>{LABEL_WIDTH - 2}}  "
            yield [
                Segment(label, self.ink("dim")),
                Segment(bar, self.ink(_ink(low, high) if newest else "text")),
            ]
        yield [Segment(fmt.clip(_found(shown), width), self.ink("strong"))]
        yield [Segment(fmt.clip(_sides(shown), width), self.ink("dim"))]


def axis(scale: float, width: int) -> str:
    """Return the axis' labels: both ends and 0, in percent."""
    left, right = f"-{100 * scale:g} %", f"+{100 * scale:g} %"
    middle = (width - 1) // 2
    return f"{left:<{middle}}0{right:>{width - middle - 1}}"


def _ink(low: float, high: float) -> str:
    if low > 0:
        return "better"
    return "bad" if high < 0 else "busy"


def _found(shown: ComparisonShown) -> str:
    if shown.verdict is not None:
        return shown.verdict
    if shown.failure is not None:
        return f"no verdict: {shown.failure}"
    if shown.change is None or shown.low is None or shown.high is None:
        return "waiting for two pairs of blocks"
    low, high = 100 * shown.low, 100 * shown.high
    return f"{shown.lever}={shown.b}: {100 * shown.change:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _sides(shown: ComparisonShown) -> str:
    sides = zip((shown.a, shown.b), shown.steps_per_s, shown.host_ms, strict=True)
    return " · ".join(
        f"{value}: {fmt.significant(rate)} steps/s, host {fmt.milliseconds(host_ms)} ms"
        for value, rate, host_ms in sides
    )
