"""The base of every widget here: rows painted as strips, only changed rows refreshed."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Self

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.style import Style as ThemedStyle
from textual.widget import Widget

from gpudash.tui.containment import Contained, PartFailed

Row = list[Segment]

INKS = {
    "text": "$foreground",
    "strong": "bold $foreground",
    "dim": "$text-muted",
    "head": "bold $text-muted",
    "faint": "$text-disabled",
    "good": "$text-success",
    "better": "bold $text-success",
    "busy": "$text-warning",
    "bad": "bold $text-error",
    "key": "bold $text-accent",
    "border": "$text-disabled",
    "focus": "bold $text-accent",
    "cursor": "$block-cursor-foreground on $block-cursor-background",
    # lines are to be told apart on dark and on light themes; all else is the theme's
    "line-0": "#e0a030",
    "line-1": "#4a9eea",
    "line-2": "#b58aef",
    "line-3": "#52b87a",
    "line-4": "#e8707e",
    "line-5": "#3fbac2",
    "line-6": "#c9c34f",
}
"""What widgets paint with. Not component classes: Textual would match the stylesheet for each
of them in each widget several times before the first frame."""
VARIABLE = re.compile(r"\$([\w-]+)")


class Painted(Contained, Widget):
    """A widget that knows how to draw itself as rows of segments at its present size."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id, classes=classes)
        self._strips: list[Strip] = []
        self._painted_size: Size | None = None
        self._base: Style | None = None
        self._inks: dict[str, Style] = {}
        self._complaint: str | None = None  # what failed as it was last brought up to date

    def rows(self, width: int, height: int) -> Iterable[Row]:
        """Return the rows; what is beyond `width` or `height` is cut off."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    @contextmanager
    def contained(self) -> Iterator[Self]:
        """Bring the widget up to date in here: where that fails it says so, until it succeeds."""
        before, self._complaint = self._complaint, None
        try:
            yield self
        except Exception as error:  # noqa: BLE001  # whatever it is, the others are shown
            self._complaint = self._fail(error)
        if before or self._complaint:
            self.repaint()

    def _fail(self, error: Exception) -> str:
        """Tell the app; return the line to show."""
        failed = PartFailed(self, error)
        self.post_message(failed)
        return failed.sentence

    def repaint(self) -> None:
        """Draw again and have the terminal shown those rows that differ."""
        if self._painted_size != self.size:
            self.refresh()  # never drawn at this size: rendering will
            return
        before, self._strips = self._strips, self._draw()
        changed = [y for y, strip in enumerate(self._strips) if strip != before[y]]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def redraw(self) -> None:
        """Draw again although the size is the same: something else has changed its own."""
        self._painted_size = None
        self.refresh()

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
        try:
            strips = [_strip(row, width, base) for row in self._rows(width, height)]
        except Exception as error:  # noqa: BLE001  # whatever it is, the others are painted
            strips = [_strip([Segment(f" {self._fail(error)}")], width, base)]
        return strips + [Strip.blank(width, base)] * (height - len(strips))

    def _rows(self, width: int, height: int) -> Iterable[Row]:
        if not (width and height):
            return ()
        if self._complaint:
            return ([Segment(f" {self._complaint}")],)
        return islice(self.rows(width, height), height)

    def notify_style_update(self) -> None:
        """Draw in the new theme's colours."""
        super().notify_style_update()
        self._painted_size = None
        self._base = None
        self._inks.clear()

    def ink(self, name: str) -> Style:
        """Return the style of this name in the present theme, on the widget's background."""
        if name not in self._inks:
            colours = self.app.theme_variables
            # not left to Textual: it would lose the share in `auto 60%`
            ink = VARIABLE.sub(lambda variable: colours[variable[1]], INKS[name])
            style: Style = (self.visual_style + ThemedStyle.parse(ink)).rich_style
            self._inks[name] = style
        return self._inks[name]


def _strip(row: Row, width: int, base: Style) -> Strip:
    """Return the row at this width; what has no ink is painted in the widget's own style."""
    segments = [segment if segment.style else Segment(segment.text, base) for segment in row]
    missing = width - width_of(row)
    if missing > 0:
        segments.append(Segment(" " * missing, base))
    return Strip(segments, max(width, width - missing)).crop(0, width)


class Scrolled(Painted):
    """A painted widget that the mouse wheel scrolls by rows."""

    def scroll_rows(self, direction: int) -> None:
        """Show earlier rows (-1) or later ones (+1)."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

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
