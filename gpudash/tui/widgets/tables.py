"""A widget for text tables that scrolls by rows."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from gpudash.tui.cells import Parts
from gpudash.tui.widgets.painted import Scrolled

Painter: TypeAlias = Callable[[int], Iterable[Parts]]
"""A function that returns all rows for a width."""
COPIED_COLUMNS = 120


class Tables(Scrolled):
    """Shows the rows of a painter."""

    def __init__(self) -> None:
        super().__init__(id="tables")
        self._painter: Painter = lambda _width: ()
        self._first = 0

    def show(self, painter: Painter) -> None:
        """Show a table from its first row on."""
        self._painter, self._first = painter, 0
        self.redraw()

    def scroll_rows(self, direction: int) -> None:
        """Scroll down by rows, or up if negative; not beyond the ends."""
        width, height = self.size
        beyond = sum(1 for _ in self._painter(width)) - height
        self._first = max(min(self._first + direction, beyond), 0)
        self.repaint()

    @property
    def text(self) -> str:
        """All rows as text to copy."""
        rows = self._painter(COPIED_COLUMNS)
        return "\n".join("".join(text for text, _ in row).rstrip() for row in rows)

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # the base cuts them
        """Yield the rows from the topmost visible one on."""
        yield from list(self._painter(width))[self._first :]
