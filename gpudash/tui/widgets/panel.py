"""The base of framed widgets: the border has title, values and buttons, and shows the focus.

The frame is painted with the content, row by row: a border of Textual's cannot hold buttons, and
costs each widget two more style matches before the first frame.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice, repeat

import msgspec
from textual import events
from textual.geometry import Size

from gpudash.tui.cells import Cell, Parts, exactly, placed, width_of
from gpudash.tui.widgets.painted import Painted

THIN = tuple("╭╮╰╯─│")
HEAVY = tuple("┏┓┗┛━┃")
"""The border of the panel with the focus: corners, horizontal, vertical. Others have `THIN`."""
MARGIN = 3
"""Columns between two cells of the border, or a cell and a corner: blank, line, blank."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
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

    def frame(self) -> Frame:
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
