"""The base of charts over the common time axis: the mouse moves the cursor and the time range."""

from textual import events

from gpudash import format as fmt
from gpudash.snapshot import Snapshot
from gpudash.tui.cells import Cell, cell
from gpudash.tui.charts.axes import TimeRange, TimeView
from gpudash.tui.widgets.panel import Panel
from gpudash.views.throughput import now

GUTTER = 6
"""Columns of the value axis: five for numbers and one for the line."""
LEAST_PLOT = 12
"""Fewest columns of a plot with a value axis."""
LEAST_DRAG = 2
"""Fewest columns of a drag; less is a click."""


def gutter_of(width: int) -> int:
    """Return the columns of the value axis in a body of this width."""
    return GUTTER if width >= GUTTER + LEAST_PLOT else 0


def begin_cells(time_range: TimeRange) -> tuple[Cell, ...]:
    """Return a cell with the moment at the left border; empty if that is before the run."""
    begin_s = time_range.begin_s
    return (cell(fmt.minutes(begin_s), "dim", rank=1),) if begin_s >= 0 else ()


def newest_moment(newest_s: float, *, live: bool) -> str:
    """Return the text at the right border of a chart that follows the run."""
    return f"{'live' if live else 'at'} {fmt.minutes(newest_s)}"


def moment_cell(view: TimeView, steps_per_s: float | None) -> Cell:
    """Return a cell with the time of the border's values: the cursor's, or the last seconds."""
    if view.moment_s is None:
        return cell(now(steps_per_s), "dim", rank=5)
    return cell(f"at {fmt.minutes(view.moment_s)}", "dim", rank=1)


class TimePanel(Panel):
    """A chart. A click puts the cursor, a drag chooses a range, the wheel zooms."""

    _snapshot = Snapshot()
    view = TimeView()
    _shown: tuple[object, ...] = ()
    _pressed_at = 0  # column of the body

    def show(self, snapshot: Snapshot, view: TimeView) -> None:
        """Update the data; repaint if anything shown changed."""
        self._snapshot, self.view = snapshot, view
        before, self._shown = self._shown, (view, *self.shown_of(snapshot))
        if self._shown != before:
            self.repaint()

    def shown_of(self, snapshot: Snapshot) -> tuple[object, ...]:
        """Return the data that the panel shows of a snapshot."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def time_at(self, x: int) -> float | None:
        """Return the moment in this column of the body; None beside the plot."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Remember where a drag may begin; it may end outside of the panel."""
        self.capture_mouse()
        self._pressed_at = event.x - self.framed

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Choose the range that was dragged over."""
        self.release_mouse()
        x = event.x - self.framed
        begin_s, end_s = self.time_at(self._pressed_at), self.time_at(x)
        if begin_s is not None and end_s is not None and self._is_drag(x):
            self.act(f"screen.between({begin_s!r}, {end_s!r})")

    def clicked(self, x: int, y: int) -> None:  # noqa: ARG002  # any row
        """Put the cursor at this column."""
        at_s = self.time_at(x)
        if at_s is not None and not self._is_drag(x):
            self.act(f"screen.cursor_at({at_s!r})")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show less time."""
        event.stop()
        self.act("screen.range(-1)")

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show more time."""
        event.stop()
        self.act("screen.range(1)")

    def _is_drag(self, x: int) -> bool:
        return abs(x - self._pressed_at) >= LEAST_DRAG
