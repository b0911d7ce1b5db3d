"""The lanes of a profile's timeline, with mouse control."""

from collections.abc import Callable, Iterator

from textual import events

from gpudash.tui.cells import Parts
from gpudash.tui.charts.trace_view import TraceView
from gpudash.tui.widgets.painted import Painted
from gpudash.tui.widgets.trace_rows import Places, places, rows_in_sight, timeline_rows

LEAST_DRAG = 1
"""Fewest columns of a drag; less is a click."""


class Lanes(Painted):
    """The lanes. A click puts the cursor, a drag pans, the wheel zooms around the pointer."""

    def __init__(self, view: TraceView, changed: Callable[[], object]) -> None:
        """Call `changed` whenever the view changes."""
        super().__init__(id="lanes")
        self.view = view
        self._changed = changed
        self._pressed_at: int | None = None
        self._dragged = False

    @property
    def cell_us(self) -> float:
        """Time that a cell shows, in µs."""
        return self.view.span.length_us / self._places.columns

    @property
    def _places(self) -> Places:
        return places(self.view, *self.size)

    def show(self, view: TraceView) -> None:
        """Show this view."""
        self.view = view
        self.repaint()
        self._changed()

    def rows(self, width: int, height: int) -> Iterator[Parts]:
        """Return the timeline's rows."""
        return timeline_rows(self.view, width, height)

    # ── the mouse ───────────────────────────────────────────────────────────────────────

    def time_at(self, x: int) -> float:
        """Return the moment in this column, or in the nearest one of the trace."""
        where = self._places
        column = min(max(x - where.gutter, 0), where.columns - 1)
        return self.view.span.begin_us + (column + 0.5) * self.cell_us

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Remember where a drag may begin."""
        self.capture_mouse()
        self._pressed_at, self._dragged = event.x, False

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Pan while the lanes are dragged."""
        if self._pressed_at is None or abs(event.x - self._pressed_at) < LEAST_DRAG:
            return
        by_us = (self._pressed_at - event.x) * self.cell_us
        self._pressed_at, self._dragged = event.x, True
        self.show(self.view.panned(by_us))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Put the cursor, unless the lanes were dragged."""
        self.release_mouse()
        pressed, self._pressed_at = self._pressed_at, None
        if pressed is None or self._dragged:
            return
        where = self._places
        shown = rows_in_sight(self.view.timeline.rows, self.view.lane, where.lanes)
        number = event.y - where.above
        view = self.view.in_lane(shown[number]) if 0 <= number < len(shown) else self.view
        self.show(view.at(self.time_at(event.x)))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show less time."""
        event.stop()
        self.show(self.view.zoomed(-1, self.time_at(event.x)))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show more time."""
        event.stop()
        self.show(self.view.zoomed(+1, self.time_at(event.x)))
