"""Where a timeline is being looked at: stretch, lane, cursor and search, as one frozen value."""

import msgspec
import numpy as np
from msgspec.structs import replace

from gpudash.tui.span import Span, span_of
from gpudash.views.timeline import (
    Details,
    Indices,
    Row,
    Timeline,
    beside,
    cells_of,
    details_of,
    matches,
    place_of,
)

AROUND = 0.1
"""Of an event's length, shown beside it where it is zoomed to."""
LAST = 1e-9
"""Of what is shown: so far before its end is still in sight."""


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a timeline. `cell_us` is how much of it a cell shows."""

    timeline: Timeline
    span: Span
    at_us: float = 0.0
    """The cursor."""
    lane: int = 0
    """The row that it is in."""
    position: int | None = None
    """The event that was gone to; None: the one that fills most of the cell."""
    sought: str = ""
    found: Indices | None = None
    """Events that match; None without a search."""

    @property
    def row(self) -> Row | None:
        """The cursor's; None where there are no rows."""
        return self.timeline.rows[self.lane] if self.timeline.rows else None

    def event(self, cell_us: float) -> int | None:
        """Return the position of the event under the cursor in its row."""
        if self.position is not None or self.row is None:
            return self.position
        cell = (self.at_us - self.span.begin_us) // cell_us
        begin_us = self.span.begin_us + cell * cell_us
        position = int(cells_of(self.row, begin_us, begin_us + cell_us, 1).position[0])
        return position if position >= 0 else None

    def details(self, cell_us: float) -> Details | None:
        """Return what is known of the event under the cursor."""
        position = self.event(cell_us)
        if position is None or self.row is None:
            return None
        return details_of(self.timeline, self.row, position)

    # ── the cursor ──────────────────────────────────────────────────────────────────────

    def at(self, at_us: float) -> "TraceView":
        """Put the cursor at a moment, and that into sight."""
        at_us = min(max(at_us, 0.0), self.span.whole_us)
        return replace(self, at_us=at_us, span=self.span.holding(at_us), position=None)

    def moved(self, cells: int, cell_us: float) -> "TraceView":
        """Move the cursor by cells, to the middle of one."""
        cell = (self.at_us - self.span.begin_us) // cell_us + cells
        return self.at(self.span.begin_us + (cell + 0.5) * cell_us)

    def in_lane(self, lane: int) -> "TraceView":
        """Put the cursor in this row, or in the nearest one."""
        lane = max(min(lane, len(self.timeline.rows) - 1), 0)
        return replace(self, lane=lane, position=None)

    def beside(self, direction: int) -> "TraceView":
        """Go to the next event of the row (+1), or to the one before (-1)."""
        if self.row is None:
            return self
        if self.position is None:
            position = beside(self.row, self.at_us, direction)
        else:
            position = self.position + direction
            position = position if 0 <= position < len(self.row.begin_us) else None
        return self if position is None else self._on(self.lane, position)

    def _on(self, lane: int, position: int) -> "TraceView":
        begin_us = float(self.timeline.rows[lane].begin_us[position])
        return replace(self.at(begin_us), lane=lane, position=position)

    # ── the stretch that is shown ───────────────────────────────────────────────────────

    def zoomed(self, direction: int, at_us: float | None = None) -> "TraceView":
        """Show less (-1) or more (+1) around the cursor, or around another moment."""
        if at_us is None:
            at_us = self.at_us if self.span.holds(self.at_us) else self.span.middle_us
        return replace(self, span=self.span.zoomed(direction, at_us))

    def panned(self, by_us: float) -> "TraceView":
        """Show what comes so much later; the cursor stays in sight."""
        span = self.span.panned(by_us)
        moved = replace(self, span=span)
        if span.holds(self.at_us):
            return moved
        at_us = span.begin_us if self.at_us < span.begin_us else span.end_us - LAST * span.length_us
        return replace(moved, at_us=at_us, position=None)

    def whole(self) -> "TraceView":
        """Show the whole trace."""
        return replace(self, span=self.span.all())

    def on_event(self, cell_us: float) -> "TraceView":
        """Zoom to the event under the cursor."""
        position = self.event(cell_us)
        if position is None or self.row is None:
            return self
        begin_us, end_us = float(self.row.begin_us[position]), self.row.end_us(position)
        margin_us = AROUND * (end_us - begin_us)
        span = self.span.of(begin_us - margin_us, end_us + margin_us)
        return replace(self._on(self.lane, position), span=span)

    @property
    def step(self) -> int | None:
        """Which of the trace's steps holds the middle of what is shown; None for none."""
        middle_us = self.span.middle_us
        steps = enumerate(self.timeline.trace.steps)
        return next((i for i, one in steps if one.begin_us <= middle_us < one.end_us), None)

    def beside_step(self, direction: int) -> "TraceView":
        """Show the next step (+1), or the one before (-1)."""
        middle_us = self.span.middle_us
        steps = list(enumerate(self.timeline.trace.steps))
        ahead = [index for index, one in steps if one.begin_us > middle_us]
        behind = [index for index, one in steps if one.end_us <= middle_us]
        there = ahead[:1] if direction > 0 else behind[-1:]
        return self.on_step(there[0]) if there else self

    def on_step(self, index: int) -> "TraceView":
        """Show a step."""
        step = self.timeline.trace.steps[index]
        span = self.span.of(step.begin_us, step.end_us)
        view = replace(self, span=span)
        return view if span.holds(self.at_us) else replace(view, position=None, at_us=span.begin_us)

    # ── searching ───────────────────────────────────────────────────────────────────────

    def searching(self, text: str) -> "TraceView":
        """Search for a text in names, and go to the first match from the cursor on."""
        if not text:
            return replace(self, sought="", found=None)
        view = replace(self, sought=text, found=matches(self.timeline, text), position=None)
        return view.match(1)

    @property
    def match_number(self) -> int | None:
        """Which of the matches the cursor is on, from 1; None for none."""
        event = self._event
        if self.found is None or event is None:
            return None
        number = int(np.searchsorted(self.found, event))
        return number + 1 if number < len(self.found) and self.found[number] == event else None

    def match(self, direction: int) -> "TraceView":
        """Go to the next match (+1) or to the one before (-1), beyond the last to the first."""
        if self.found is None or not len(self.found):
            return self
        event = self._event
        if event is None:
            begins = self.timeline.trace.events.begin_us[self.found]
            number = int(np.searchsorted(begins, self.at_us)) - (direction < 0)
        else:
            side = np.searchsorted(self.found, event, side="right" if direction > 0 else "left")
            number = int(side) - (direction < 0)
        place = place_of(self.timeline, int(self.found[number % len(self.found)]))
        return self if place is None else self._on(*place)

    @property
    def _event(self) -> int | None:
        """The event that was gone to."""
        if self.position is None or self.row is None:
            return None
        event = int(self.row.events[self.position])
        return event if event >= 0 else None


def view_of(timeline: Timeline) -> TraceView:
    """Return what is shown first: a step from the middle, or all where there is none."""
    span = span_of(timeline.length_us)
    view = TraceView(timeline=timeline, span=span)
    steps = timeline.trace.steps
    view = view.on_step(len(steps) // 2) if steps else view
    on_first = view.beside(1)
    return on_first if on_first.span == view.span else view
