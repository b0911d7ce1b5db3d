"""A widget in a frame: title, values and buttons stand in its border, which shows the focus.

The frame is painted with the content, row by row: a border of Textual's would cost each widget
two more style matches before the first frame, and holds no buttons.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice, repeat

import msgspec
from rich.segment import Segment
from textual import events
from textual.geometry import Size

from gpudash.tui.cells import Cell, placed
from gpudash.tui.widgets.painted import Painted, Row, width_of

THIN = tuple("╭╮╰╯─│")
HEAVY = tuple("┏┓┗┛━┃")
"""Of the panel that has the focus: corners, horizontal, vertical."""
MARGIN = 3
"""Columns between a cell of the border and the next one, or a corner: a blank each, and a line."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in a panel's border. The left cells are kept longest."""

    top: tuple[Cell, ...] = ()
    top_right: tuple[Cell, ...] = ()
    bottom: tuple[Cell, ...] = ()
    bottom_right: tuple[Cell, ...] = ()

    def placed(self, width: int, *, top: bool) -> Iterator[tuple[int, Cell]]:
        """Yield (column, cell) for the cells of an edge that there is room for."""
        left, right = (self.top, self.top_right) if top else (self.bottom, self.bottom_right)
        return placed(left, right, width, margin=MARGIN, gap=MARGIN)


class Panel(Painted):
    """A framed part of the main screen. It takes the focus by a digit, by Tab and by a click."""

    can_focus = True
    framed = True
    """Without a frame the body has all of the room; where the screen is small, say."""

    @property
    def inside(self) -> Size:
        """The size of the body."""
        return self.size - (2, 2) if self._has_frame(*self.size) else self.size

    def _has_frame(self, width: int, height: int) -> bool:
        return self.framed and width >= 4 and height >= 3

    def frame(self) -> Frame:
        """Return what stands in the border now."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def body(self, width: int, height: int) -> Iterable[Row]:
        """Return the rows inside of the frame; what is beyond `width` or `height` is cut off."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    def rows(self, width: int, height: int) -> Iterator[Row]:
        """Yield the frame with the body in it."""
        if not self._has_frame(width, height):
            yield from self.body(width, height)
            return
        frame, ink = self.frame(), self.ink("focus" if self.has_focus else "border")
        left_top, right_top, left_bottom, right_bottom, across, down = (
            HEAVY if self.has_focus else THIN
        )
        side = Segment(down, ink)
        yield self._edge(left_top, across, right_top, frame.placed(width, top=True), width)
        blank: Row = []
        for row in islice(chain(self.body(width - 2, height - 2), repeat(blank)), height - 2):
            yield [side, *Segment.adjust_line_length(row, width - 2), side]
        yield self._edge(left_bottom, across, right_bottom, frame.placed(width, top=False), width)

    def _edge(
        self, begin: str, across: str, end: str, cells: Iterable[tuple[int, Cell]], width: int
    ) -> Row:
        ink = self.ink("focus" if self.has_focus else "border")
        row: Row = [Segment(begin + across, ink)]
        for x, one in cells:
            row += [Segment(across * (x - 1 - width_of(row)), ink), Segment(" ", ink)]
            row += [*self.inked(one.parts), Segment(" ", ink)]
        return [*row, Segment(across * (width - 1 - width_of(row)) + end, ink)]

    def watch_has_focus(self, _has_focus: bool) -> None:  # noqa: FBT001  # Textual's signature
        """Show it; no style rule asks for the focus, so none is matched anew."""
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        """Run the action of a cell in the border; elsewhere ask the body."""
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
        """Take a click on the body, at this column and row of it."""
