"""The base of every widget here: rows painted as strips, only changed rows refreshed."""

from collections.abc import Iterable
from itertools import islice

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

Row = list[Segment]


class Painted(Widget):
    """A widget that knows how to draw itself as rows of segments at its present size."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id, classes=classes)
        self._strips: list[Strip] = []
        self._painted_size: Size | None = None
        self._base: Style | None = None
        self._parts: dict[str, Style] = {}  # Textual forgets its own at every refresh

    def rows(self, width: int, height: int) -> Iterable[Row]:
        """Return the rows; what is beyond `width` or `height` is cut off."""
        raise NotImplementedError

    def repaint(self) -> None:
        """Draw again and have the terminal shown those rows that differ."""
        if self._painted_size != self.size:
            self.refresh()  # never drawn at this size: rendering will
            return
        before, self._strips = self._strips, self._draw()
        changed = [y for y, strip in enumerate(self._strips) if strip != before[y]]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """Return a row as it was drawn; after a change of size all are drawn first."""
        if self._painted_size != self.size:
            self._strips, self._painted_size = self._draw(), self.size
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def _draw(self) -> list[Strip]:
        width, height = self.size
        if self._base is None:
            self._base = self.rich_style  # a millisecond of walking up the tree
        base = self._base
        rows = islice(self.rows(width, height), height) if width and height else ()
        strips = [Strip(row).adjust_cell_length(width).apply_style(base) for row in rows]
        return strips + [Strip.blank(width, base)] * (height - len(strips))

    def notify_style_update(self) -> None:
        """Draw in the new theme's colours."""
        super().notify_style_update()
        self._painted_size = None
        self._base = None
        self._parts.clear()

    def part(self, name: str) -> Style:
        """Return the style of a part of the widget, as the stylesheet has it."""
        if name not in self._parts:
            self._parts[name] = self.get_component_rich_style(name)
        return self._parts[name]


class Scrolled(Painted):
    """A painted widget that the mouse wheel scrolls by rows."""

    def scroll_rows(self, direction: int) -> None:
        """Show earlier rows (-1) or later ones (+1)."""
        raise NotImplementedError

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show earlier rows."""
        event.stop()
        self.scroll_rows(-1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show later rows."""
        event.stop()
        self.scroll_rows(1)


def width_of(row: Row) -> int:
    """Return the width of a row in cells."""
    return sum(cell_len(segment.text) for segment in row)
