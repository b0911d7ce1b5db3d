"""The lever panel: every lever with its value, and what the one under the cursor does."""

import textwrap
from collections.abc import Iterator

from rich.segment import Segment
from textual import events

from gpudash import format as fmt
from gpudash.tui.control import LeverRow
from gpudash.tui.widgets.painted import Row, Scrolled, width_of
from workloads.levers import Lever

SIDE_BY_SIDE = 64
"""Columns from which the explanation stands beside the list instead of below it."""
LIST_WIDTH = 32
EXPLANATION_ROWS = 10
"""What most have room in, title included: the list gives way only to a longer one."""


class LeverPanel(Scrolled):
    """The levers of the workload; the app moves the cursor and makes the change."""

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._levers: tuple[LeverRow, ...] = ()
        self._why_not: str | None = None
        self._cursor = 0
        self.titled = True
        """False where a tab above names the panel already."""

    def show(self, levers: tuple[LeverRow, ...], why_not: str | None = None) -> None:
        """Take new values, and why they cannot be changed; only rows that changed are painted."""
        if (levers, why_not) != (self._levers, self._why_not):
            self._levers, self._why_not = levers, why_not
            self._cursor = min(self._cursor, max(len(levers) - 1, 0))
            self.repaint()

    @property
    def chosen(self) -> Lever | None:
        """The lever under the cursor."""
        return self._levers[self._cursor].lever if self._levers else None

    def move(self, direction: int) -> None:
        """Move the cursor, from the end to the other end."""
        if self._levers:
            self._cursor = (self._cursor + direction) % len(self._levers)
            self.repaint()

    def on_click(self, event: events.Click) -> None:
        """Choose the lever under the pointer and change it, as Enter does."""
        width, height = self.size
        y = event.y - int(self.titled)
        index = y + self._first_row(self._list_height(width, height))
        in_list = event.x < (LIST_WIDTH if width >= SIDE_BY_SIDE else width)
        if y >= 0 and index < len(self._levers) and in_list:
            self._cursor = index
            self.repaint()
            self.app.call_later(self.app.run_action, "edit")

    def scroll_rows(self, direction: int) -> None:
        """Move the cursor up (-1) or down (+1)."""
        self.move(direction)

    # ── painting ────────────────────────────────────────────────────────────────────────

    def rows(self, width: int, height: int) -> Iterator[Row]:
        """Yield the list, and the explanation below or beside it."""
        if width >= SIDE_BY_SIDE:
            yield from self._beside(width, height)
        else:
            yield from self._list(width, self._list_height(width, height))
            yield []
            if self.chosen is not None:
                yield [Segment(f" {self.chosen.name}", self.ink("strong"))]
            yield from self._explanation(width - 2)

    def _beside(self, width: int, height: int) -> Iterator[Row]:
        left = list(self._list(LIST_WIDTH, self._list_height(width, height)))
        right = list(self._explanation(width - LIST_WIDTH - 2))
        for index in range(max(len(left), len(right))):
            row = left[index] if index < len(left) else []
            padding = Segment(" " * max(LIST_WIDTH - width_of(row), 0))
            yield [*row, padding, *(right[index] if index < len(right) else [])]

    def _list_height(self, width: int, height: int) -> int:
        """Rows for levers: beside the text all there are, above it what the text leaves."""
        room = height - int(self.titled)
        if width >= SIDE_BY_SIDE:
            return room
        text = 1 + len(list(self._explanation(width - 2)))
        return max(min(len(self._levers), room - 1 - max(text, EXPLANATION_ROWS)), 3)

    def _first_row(self, height: int) -> int:
        """Index of the first lever in sight, so that the cursor is."""
        return max(self._cursor - height + 1, 0)

    def _list(self, width: int, height: int) -> Iterator[Row]:
        if self.titled:
            yield [Segment(" levers", self.ink("strong"))]
        if not self._levers:
            yield [Segment(" none known", self.ink("dim"))]
        first = self._first_row(height)
        last = min(first + height, len(self._levers)) - 1
        marks = {last: "↓"} if last < len(self._levers) - 1 else {}
        marks |= {first: "↑"} if first else {}
        for index in range(first, last + 1):
            yield self._row(index, width, marks.get(index, " "))

    def _row(self, index: int, width: int, mark: str) -> Row:
        """Return a lever's row; the mark at its end says that there are more beyond it."""
        row, under_cursor = self._levers[index], index == self._cursor
        pending = row.pending is not None
        value = f"{row.value} → {row.pending} …" if pending else row.value
        name_width = max((len(r.lever.name) for r in self._levers), default=0) + 2
        name = f"{'▸' if under_cursor else ' '}{row.lever.name:<{name_width}}"
        room = max(width - len(name) - 2, 1)
        text = f"{fmt.clip(value, room):<{room}}{mark}"
        if under_cursor:
            return [Segment(name + text, self.ink("cursor"))]
        value_style = self.ink("dim" if self._why_not else "busy" if pending else "text")
        return [Segment(name, self.ink("dim")), Segment(text, value_style)]

    def _explanation(self, width: int) -> Iterator[Row]:
        lever = self.chosen
        if lever is None:
            return
        # the summary first, then what may be set and when it takes effect
        effect = self._why_not or f"takes effect: {lever.effect}"
        for text in (lever.summary, f"Values: {lever.valid}.", f"{effect.capitalize()}."):
            for line in textwrap.wrap(text, max(width - 1, 1)):
                yield [Segment(f" {line}", self.ink("dim"))]
