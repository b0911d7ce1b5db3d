"""The bases of framed widgets: panels, and those over the charts' common time axis.

The border has title, values and buttons, and shows the focus.
The frame is painted with the content, row by row: a border of Textual's cannot hold buttons, and
costs each widget two more style matches before the first frame.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice, repeat

import msgspec
from textual import events
from textual.geometry import Size

from gpudash import format as fmt
from gpudash.ranks.recent import now
from gpudash.snapshot import Snapshot
from gpudash.tui.cells import Cell, Parts, cell, exactly, placed, width_of
from gpudash.tui.charts.axes import TimeRange, TimeView
from gpudash.tui.widgets.painted import Painted

THIN = tuple("╭╮╰╯─│")
HEAVY = tuple("┏┓┗┛━┃")
"""The border of the panel with the focus: corners, horizontal, vertical. Others have `THIN`."""
MARGIN = 3
"""Columns between two cells of the border, or a cell and a corner: blank, line, blank."""


class PanelFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The cells in a panel's border, by place."""

    top: tuple[Cell, ...] = ()
    top_right: tuple[Cell, ...] = ()
    bottom: tuple[Cell, ...] = ()
    bottom_right: tuple[Cell, ...] = ()

    def placed(self, width: int, *, top: bool) -> Iterator[tuple[int, Cell]]:
        """Yield (column, cell) for the cells of an edge that fit."""
        left, right = (self.top, self.top_right) if top else (self.bottom, self.bottom_right)
        return placed(left, right, width, margin=MARGIN, gap=MARGIN)


class Panel(Painted):
    """A framed part of the main screen. A digit, Tab or a click gives it the focus."""

    can_focus = True
    framed = True
    """Whether there is a frame; without one, as on a small screen, the body has all the room."""

    @property
    def inside(self) -> Size:
        """The size of the body."""
        return self.size - (2, 2) if self._has_frame(*self.size) else self.size

    def _has_frame(self, width: int, height: int) -> bool:
        return self.framed and width >= 4 and height >= 3

    def frame(self) -> PanelFrame:
        """Return the present cells of the border."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def body(self, width: int, height: int) -> Iterable[Parts]:
        """Return the rows inside the frame; anything beyond `width` or `height` is cut off."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def rows(self, width: int, height: int) -> Iterator[Parts]:
        """Yield the frame with the body in it."""
        if not self._has_frame(width, height):
            yield from self.body(width, height)
            return
        frame, ink = self.frame(), "focus" if self.has_focus else "border"
        left_top, right_top, left_bottom, right_bottom, across, down = (
            HEAVY if self.has_focus else THIN
        )

        def edge(begin: str, end: str, *, top: bool) -> Parts:
            row = [(begin + across, ink)]
            for x, one in frame.placed(width, top=top):
                row += [(across * (x - 1 - width_of(row)), ink), (" ", ink)]
                row += [*one.parts, (" ", ink)]
            return (*row, (across * (width - 1 - width_of(row)) + end, ink))

        yield edge(left_top, right_top, top=True)
        for row in islice(chain(self.body(width - 2, height - 2), repeat(())), height - 2):
            yield ((down, ink), *exactly(row, width - 2), (down, ink))
        yield edge(left_bottom, right_bottom, top=False)

    def watch_has_focus(self, _has_focus: bool) -> None:  # noqa: FBT001  # Textual's signature
        """Repaint the border; no style rule depends on the focus, so none is matched again."""
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        """Run the action of a clicked cell in the border, or pass the click to the body."""
        width, height = self.size
        if not self.framed:
            self.clicked(event.x, event.y)
        elif event.y in (0, height - 1):
            for x, one in self.frame().placed(width, top=event.y == 0):
                if x <= event.x < x + one.width and one.action:
                    self.act(one.action)
        else:
            self.clicked(event.x - 1, event.y - 1)

    def clicked(self, x: int, y: int) -> None:
        """Handle a click at this column and row of the body."""


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
