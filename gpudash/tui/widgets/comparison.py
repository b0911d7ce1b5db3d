"""The A/B panel: the interval closing in, a row for every few pairs."""

import textwrap
from collections.abc import Iterator

from rich.segment import Segment

from gpudash import format as fmt
from gpudash.protocol import ComparisonShown
from gpudash.tui.axes import nice_ceiling
from gpudash.tui.widgets.painted import Painted, Row

LEAST_SCALE = 0.01
LEAST_DRAWN = 2
"""Rows: an axis and the newest interval."""
LABEL_WIDTH = 9
"""Columns for the number of pairs."""


def scale_of(shown: ComparisonShown) -> float:
    """Return the change at the right end of the axis; the left end is its negative."""
    if not shown.history:
        return LEAST_SCALE
    low, change, high = shown.history[-1]
    early_low, _, early_high = shown.history[len(shown.history) // 4]
    newest = max(abs(low), abs(change), abs(high), LEAST_SCALE)
    early = max(abs(early_low), abs(early_high))
    # the first intervals are wild: they may end beyond the axis
    wanted = max(newest, min(early, 4 * newest))
    return nice_ceiling(min(wanted, max(1.0, 2 * abs(change))))


def column(value: float, scale: float, width: int) -> int:
    """Return where on the axis a value stands, at its end for one beyond."""
    within = min(max(value / scale, -1.0), 1.0)
    return int((within + 1) / 2 * (width - 1) + 0.5)


def interval_bar(low: float, change: float, high: float, scale: float, width: int) -> str:
    """Return an interval drawn on an axis from -scale to +scale, `│` at 0; `◂▸` are cut off."""

    def at(value: float) -> int:
        return column(value, scale, width)

    cells = [" "] * width
    cells[at(0)] = "│"
    first, last = at(low), at(high)  # an early one may lie beyond the axis as a whole
    cells[first : last + 1] = "─" * (last + 1 - first)
    if low <= scale:
        cells[first] = "├" if low >= -scale else "◂"
    if high >= -scale:
        cells[last] = "┤" if high <= scale else "▸"
    if low > scale:
        cells[-1] = "▸"
    if high < -scale:
        cells[0] = "◂"
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
            over = shown is None or shown.is_over
            self.border_subtitle = "esc closes" if over else "a ends it · esc hides it"
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
        found, sides = _found(shown, width), _sides(shown, width)
        left = height - 1 - len(found)
        if left - len(sides) < LEAST_DRAWN:
            sides = []
        yield from self._intervals(shown, width, left - len(sides))
        yield from ([Segment(fmt.clip(line, width), self.ink("strong"))] for line in found)
        yield from ([Segment(fmt.clip(line, width), self.ink("dim"))] for line in sides)

    def _intervals(self, shown: ComparisonShown, width: int, height: int) -> Iterator[Row]:
        if height < LEAST_DRAWN:
            return
        room = max(width - LABEL_WIDTH - 1, 12)
        scale = scale_of(shown)
        yield [Segment(" " * LABEL_WIDTH + axis(scale, room), self.ink("dim"))]
        for index in sampled(len(shown.history), height - 1):
            low, change, high = shown.history[index]
            newest = index == len(shown.history) - 1
            bar = interval_bar(low, change, high, scale, room)
            label = f"{index + 2:>{LABEL_WIDTH - 2}}  "
            yield [
                Segment(label, self.ink("dim")),
                Segment(bar, self.ink(_ink(low, high) if newest else "text")),
            ]


def axis(scale: float, width: int) -> str:
    """Return the axis' labels: both ends and 0, in percent."""
    left, right = f"-{100 * scale:g} %", f"+{100 * scale:g} %"
    middle = column(0, scale, width)
    return f"{left:<{middle}}0{right:>{width - middle - 1}}"


def _ink(low: float, high: float) -> str:
    if low > 0:
        return "better"
    return "bad" if high < 0 else "busy"


def _found(shown: ComparisonShown, width: int) -> list[str]:
    """Return the verdict, or what is known so far and why there will not be more."""
    if shown.verdict is not None:
        return textwrap.wrap(fmt.plain(shown.verdict), width)
    known = _known(shown)
    if shown.failure is None:
        return [known or "waiting for two pairs of blocks"]
    why = textwrap.wrap(f"no verdict: {fmt.plain(shown.failure)}", width)
    return [known, *why] if known else why


def _known(shown: ComparisonShown) -> str:
    if shown.change is None or shown.low is None:
        return ""
    return f"{shown.lever}={shown.b}: {fmt.change(shown.change, shown.low, shown.high)}"


def _sides(shown: ComparisonShown, width: int) -> list[str]:
    """Return both settings in figures, on one line where it is long enough."""
    sides = [
        f"{value}: {fmt.significant(rate)} {shown.unit}, host {fmt.milliseconds(host_ms)} ms"
        for value, rate, host_ms in zip((shown.a, shown.b), shown.rates, shown.host_ms, strict=True)
    ]
    together = " · ".join(sides)
    return [together] if len(together) <= width else sides
