"""The bases of panels, and of those over the charts' common time axis.

The rule above a panel is painted with the content, row by row: a border of Textual's cannot hold
buttons, and costs each widget two more style matches before the first frame.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from textual import events
from textual.geometry import Size

from gpudash import format as fmt
from gpudash.present.axes import TimeRange, TimeView, range_of
from gpudash.present.cells import Cell, Parts, cell, placed, width_of
from gpudash.ranks.recent import now
from gpudash.snapshot import Snapshot
from gpudash.tui.widgets.painted import Painted

THIN, HEAVY = "─", "━"
"""A rule, and that of the panel with the focus."""
MARGIN = 3
"""Columns between two cells of a rule, or a cell and its end: blank, line, blank."""


Frame: TypeAlias = tuple[Sequence[Cell], Sequence[Cell]]
"""The cells in a panel's rule: at its left end, and at its right one."""


class Panel(Painted):
    """A part of the main screen below a rule. A digit, Tab or a click gives it the focus."""

    can_focus = True
    ruled = True
    """Whether it has a rule above it."""

    @property
    def inside(self) -> Size:
        width, height = self.size
        return Size(width, height - self._above(height))

    def _above(self, height: int) -> int:
        return int(self.ruled and height > 1)

    def frame(self) -> Frame:
        return (), ()

    def body(self, width: int, height: int) -> Iterable[Parts]:
        """Return the rows of the body; anything beyond `width` or `height` is cut off."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def rows(self, width: int, height: int) -> Iterator[Parts]:
        above = self._above(height)
        yield from [self.rule(width)] * above
        yield from self.body(width, height - above)

    def rule(self, width: int) -> Parts:
        across, ink = (HEAVY, "focus") if self.has_focus else (THIN, "border")
        row = [(f" {across}", ink)]
        for x, one in self._placed(width):
            row += [(across * (x - 1 - width_of(row)), ink), (" ", ink), *one.parts, (" ", ink)]
        return (*row, (across * (width - width_of(row)), ink))

    def _placed(self, width: int) -> Iterator[tuple[int, Cell]]:
        return placed(*self.frame(), width, margin=MARGIN, gap=MARGIN)

    def watch_has_focus(self, _has_focus: bool) -> None:  # noqa: FBT001  # Textual's signature
        """Repaint the rule; no style rule depends on the focus, so none is matched again."""
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        width, height = self.size
        above = self._above(height)
        if event.y >= above:
            self.clicked(event.x, event.y - above)
            return
        for x, one in self._placed(width):
            if x <= event.x < x + one.width and one.action:
                self.act(one.action)

    def clicked(self, x: int, y: int) -> None:
        """Handle a click at this column and row of the body."""


GUTTER = 6
"""Columns of the value axis: five for numbers and one for the line."""
LEAST_PLOT = 12
"""Fewest columns of a plot with a value axis."""
SECONDS_TO = 120.5
"""Length of a window from which it is given in minutes."""
LEAST_DRAG = 2
"""Fewest columns of a drag; less is a click."""


def gutter_of(width: int) -> int:
    """Return the columns of the value axis in a body of this width."""
    return GUTTER if width >= GUTTER + LEAST_PLOT else 0


def ends_of(time_range: TimeRange, view: TimeView, *, live: bool) -> tuple[str, str]:
    """Return the moments at both ends of a chart: how long ago, or when if it does not follow."""
    if view.end_s is None and live:
        return f"−{_length(time_range)}", "now"
    return fmt.minutes(max(time_range.begin_s, 0.0)), fmt.minutes(time_range.end_s)


def _length(time_range: TimeRange) -> str:
    length_s = time_range.length_s
    return f"{length_s:.0f} s" if length_s < SECONDS_TO else fmt.minutes(length_s)


def moment_cell(view: TimeView, snapshot: Snapshot) -> Cell:
    if view.moment_s is None:
        stretch = now(snapshot.steps_per_s, snapshot.steps_since_break)
        return cell(stretch, "dim", rank=5)
    return cell(f"at {fmt.minutes(view.moment_s)}", "dim", rank=1)


class TimePanel(Panel):
    """A chart. A click puts the cursor, a drag chooses a range, the wheel zooms."""

    _snapshot = Snapshot()
    view = TimeView()
    _shown: tuple[object, ...] = ()
    _pressed_at = 0  # column of the body

    def show(self, snapshot: Snapshot, view: TimeView) -> None:
        self._snapshot, self.view = snapshot, view
        before, self._shown = self._shown, (view, *self.shown_of(snapshot))
        if self._shown != before:
            self.call_later(self.repaint)  # lines take long: a key comes before the next chart

    def shown_of(self, snapshot: Snapshot) -> tuple[object, ...]:
        """Return the data that the panel shows of a snapshot."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    @property
    def time_range(self) -> TimeRange:
        """The time range that is shown; the cursor moves by its bins."""
        return self.range_in(self.inside.width)

    def range_in(self, width: int) -> TimeRange:
        return range_of(self._snapshot.series, width - gutter_of(width), self.view)

    def marks_in(self, time_range: TimeRange) -> tuple[tuple[float, str], ...]:
        """Return the moments of changes, and the cursor's last, each with its ink."""
        marks = [(one.at_s, "border") for one in self._snapshot.markers]
        marks += [(self.view.cursor_s, "strong")] if self.view.cursor_s is not None else []
        return tuple(one for one in marks if time_range.holds(one[0]))

    def time_at(self, x: int) -> float | None:
        """None beside the plot."""
        return self.time_range.moment_in(x - gutter_of(self.inside.width))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Remember where a drag may begin; it may end outside of the panel."""
        self.capture_mouse()
        self._pressed_at = event.x

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self.release_mouse()
        x = event.x
        begin_s, end_s = self.time_at(self._pressed_at), self.time_at(x)
        if begin_s is not None and end_s is not None and self._is_drag(x):
            self.act(f"screen.between({begin_s!r}, {end_s!r})")

    def clicked(self, x: int, y: int) -> None:  # noqa: ARG002  # any row
        at_s = self.time_at(x)
        if at_s is not None and not self._is_drag(x):
            self.act(f"screen.cursor_at({at_s!r})")

    def wheeled(self, direction: int, x: int) -> None:  # noqa: ARG002  # any column
        self.act(f"screen.range({direction})")

    def _is_drag(self, x: int) -> bool:
        return abs(x - self._pressed_at) >= LEAST_DRAG
