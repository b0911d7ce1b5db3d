"""The view of a trace's timeline: time span, lane, cursor and search, as frozen values."""

import msgspec
import numpy as np
from msgspec.structs import replace

from gpudash.views.timeline import (
    Details,
    Indices,
    Row,
    Timeline,
    beside,
    cells_of,
    details_of,
    longest,
    matches,
    place_of,
)

AROUND = 0.1
"""Margin around an event that is zoomed to, as a share of its length."""
LAST = 1e-9
"""Distance from the span's end that is still visible, as a share of the span."""
LEAST_US = 0.05
"""Shortest part that is shown: a trace has nanoseconds."""
ZOOM = 2.0
"""Factor of a zoom step."""
PAN = 0.25
"""A pan step, as a share of the shown part."""


class Span(msgspec.Struct, frozen=True):
    """A part of a trace, which begins at 0."""

    begin_us: float
    end_us: float
    whole_us: float

    @property
    def length_us(self) -> float:
        return self.end_us - self.begin_us

    @property
    def middle_us(self) -> float:
        return (self.begin_us + self.end_us) / 2

    def holds(self, at_us: float) -> bool:
        return self.begin_us <= at_us < self.end_us

    def of(self, begin_us: float, end_us: float) -> "Span":
        """Move the span to lie within the trace."""
        length_us = min(max(end_us - begin_us, LEAST_US), self.whole_us)
        begin_us = min(max(begin_us, 0.0), self.whole_us - length_us)
        return Span(begin_us, begin_us + length_us, self.whole_us)

    def zoomed(self, direction: int, at_us: float) -> "Span":
        """Show less (-1) or more (+1) time; `at_us` keeps its place on screen."""
        length_us = min(max(self.length_us * ZOOM**direction, LEAST_US), self.whole_us)
        begin_us = at_us - (at_us - self.begin_us) * length_us / self.length_us
        return self.of(begin_us, begin_us + length_us)

    def panned(self, by_us: float) -> "Span":
        return self.of(self.begin_us + by_us, self.end_us + by_us)

    def holding(self, at_us: float) -> "Span":
        """Move by as little as shows this moment, with a margin if it moved."""
        if self.holds(at_us):
            return self
        margin_us = PAN * self.length_us
        begin_us = (
            at_us - margin_us if at_us < self.begin_us else at_us + margin_us - self.length_us
        )
        return self.of(begin_us, begin_us + self.length_us)


def span_of(whole_us: float) -> Span:
    return Span(0.0, max(whole_us, LEAST_US), max(whole_us, LEAST_US))


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    """The view of a timeline. `cell_us` is the time that a cell shows."""

    timeline: Timeline
    span: Span
    at_us: float = 0.0
    """The cursor's moment."""
    lane: int = 0
    """The cursor's row."""
    position: int | None = None
    """The event in the row that the user went to; None: the one that fills most of the cell."""
    sought: str = ""
    found: Indices | None = None
    """Events that match; None without a search."""

    @property
    def row(self) -> Row | None:
        return self.timeline.rows[self.lane] if self.timeline.rows else None

    def event(self, cell_us: float) -> int | None:
        """Return the event's position in its row."""
        if self.position is not None or self.row is None:
            return self.position
        cell = (self.at_us - self.span.begin_us) // cell_us
        begin_us = self.span.begin_us + cell * cell_us
        position = int(cells_of(self.row, begin_us, begin_us + cell_us, 1).position[0])
        return position if position >= 0 else None

    def details(self, cell_us: float) -> Details | None:
        position = self.event(cell_us)
        if position is None or self.row is None:
            return None
        return details_of(self.timeline, self.row, position)

    # ── the cursor ──────────────────────────────────────────────────────────────────────

    def at(self, at_us: float) -> "TraceView":
        at_us = min(max(at_us, 0.0), self.span.whole_us)
        return replace(self, at_us=at_us, span=self.span.holding(at_us), position=None)

    def moved(self, cells: int, cell_us: float) -> "TraceView":
        cell = (self.at_us - self.span.begin_us) // cell_us + cells
        return self.at(self.span.begin_us + (cell + 0.5) * cell_us)

    def in_lane(self, lane: int) -> "TraceView":
        """Return a view with the cursor in this row, or in the nearest one."""
        lane = max(min(lane, len(self.timeline.rows) - 1), 0)
        return replace(self, lane=lane, position=None)

    def beside(self, direction: int) -> "TraceView":
        if self.row is None:
            return self
        if self.position is None:
            position = beside(self.row, self.at_us, direction)
        else:
            position = self.position + direction
            position = position if 0 <= position < len(self.row.begin_us) else None
        return self if position is None else self.on(self.lane, position)

    def on(self, lane: int, position: int) -> "TraceView":
        begin_us = float(self.timeline.rows[lane].begin_us[position])
        return replace(self.at(begin_us), lane=lane, position=position)

    # ── the time span ───────────────────────────────────────────────────────────────────

    def zoomed(self, direction: int, at_us: float | None = None) -> "TraceView":
        """Show less (-1) or more (+1) time around the cursor or another moment."""
        if at_us is None:
            at_us = self.at_us if self.span.holds(self.at_us) else self.span.middle_us
        return replace(self, span=self.span.zoomed(direction, at_us))

    def panned(self, by_us: float) -> "TraceView":
        """Keep the cursor visible."""
        span = self.span.panned(by_us)
        moved = replace(self, span=span)
        if span.holds(self.at_us):
            return moved
        at_us = span.begin_us if self.at_us < span.begin_us else span.end_us - LAST * span.length_us
        return replace(moved, at_us=at_us, position=None)

    def whole(self) -> "TraceView":
        return replace(self, span=span_of(self.span.whole_us))

    def on_event(self, cell_us: float) -> "TraceView":
        position = self.event(cell_us)
        if position is None or self.row is None:
            return self
        begin_us, end_us = float(self.row.begin_us[position]), self.row.end_us(position)
        margin_us = AROUND * (end_us - begin_us)
        span = self.span.of(begin_us - margin_us, end_us + margin_us)
        return replace(self.on(self.lane, position), span=span)

    @property
    def step(self) -> int | None:
        """Index of the step around the middle of the span; None if there is none."""
        middle_us = self.span.middle_us
        steps = enumerate(self.timeline.trace.steps)
        return next((i for i, one in steps if one.begin_us <= middle_us < one.end_us), None)

    def beside_step(self, direction: int) -> "TraceView":
        middle_us = self.span.middle_us
        steps = list(enumerate(self.timeline.trace.steps))
        ahead = [index for index, one in steps if one.begin_us > middle_us]
        behind = [index for index, one in steps if one.end_us <= middle_us]
        there = ahead[:1] if direction > 0 else behind[-1:]
        return self.on_step(there[0]) if there else self

    def on_step(self, index: int) -> "TraceView":
        step = self.timeline.trace.steps[index]
        span = self.span.of(step.begin_us, step.end_us)
        view = replace(self, span=span)
        return view if span.holds(self.at_us) else replace(view, position=None, at_us=span.begin_us)

    # ── searching ───────────────────────────────────────────────────────────────────────

    def searching(self, text: str) -> "TraceView":
        """Go to the first match in names from the cursor on."""
        if not text:
            return replace(self, sought="", found=None)
        view = replace(self, sought=text, found=matches(self.timeline, text), position=None)
        return view.match(1)

    @property
    def match_number(self) -> int | None:
        """Number, from 1, of the match under the cursor."""
        event = self._event
        if self.found is None or event is None:
            return None
        number = int(np.searchsorted(self.found, event))
        return number + 1 if number < len(self.found) and self.found[number] == event else None

    def match(self, direction: int) -> "TraceView":
        """Go to the next match (+1) or the previous one (-1), wrapping around."""
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
        return self if place is None else self.on(*place)

    @property
    def _event(self) -> int | None:
        if self.position is None or self.row is None:
            return None
        event = int(self.row.events[self.position])
        return event if event >= 0 else None


def view_of(timeline: Timeline) -> TraceView:
    """Put the cursor on the longest event there that is no wait: of the device, or an operator."""
    view = TraceView(timeline=timeline, span=span_of(timeline.length_us))
    steps = timeline.trace.steps
    view = view.on_step(len(steps) // 2) if steps else view
    kind = "stream" if any(row.kind == "stream" for row in timeline.rows) else "host"
    candidates = [
        (float(row.length_us[position]), number, position)
        for number, row in enumerate(timeline.rows)
        if row.kind == kind
        for position in (longest(timeline.trace, row, view.span.begin_us, view.span.end_us),)
        if position is not None
    ]
    if not candidates:
        return view
    _, number, position = max(candidates, key=lambda one: one[0])
    return replace(view.on(number, position), span=view.span)  # its own class
