"""The base of all widgets: paints rows as strips, and refreshes only changed rows."""

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
from textual.widget import Widget

from gpudash.tui import inks
from gpudash.tui.cells import Parts
from gpudash.tui.containment import Contained, PartFailed

Row = list[Segment]
FEW_COLOURS = (None, "standard")
"""rich's colour systems with sixteen colours or none."""


class Painted(Contained, Widget):
    """A widget that draws itself as rows of segments."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._strips: list[Strip] = []
        self._painted_size: Size | None = None
        self._theme = ""
        self._base: Style | None = None
        self._inks: dict[str, Style] = {}
        self._textures: dict[Style, dict[int, str]] = {}
        self._failure: str | None = None  # why the last update failed

    def rows(self, width: int, height: int) -> Iterable[Row]:
        """Return the rows; anything beyond `width` or `height` is cut off."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    @contextmanager
    def contained(self) -> Iterator[Self]:
        """Update the widget in the block; if it raises, the widget shows that until it succeeds."""
        before, self._failure = self._failure, None
        try:
            yield self
        except Exception as error:  # noqa: BLE001  # the other widgets are still shown
            self._failure = self._fail(error)
        if before or self._failure:
            self.repaint()

    def _fail(self, error: Exception) -> str:
        """Report the failure to the app; return the line to show."""
        failed = PartFailed(self, error)
        self.post_message(failed)
        return failed.sentence

    def repaint(self) -> None:
        """Draw again, and refresh the rows that differ; a hidden widget does nothing."""
        if not self.region:
            self._painted_size = None  # drawn when it is shown
            return
        if self._painted_size != self.size:
            self.refresh()  # a new size: `render_line` draws
            return
        before, self._strips = self._strips, self._draw()
        changed = [y for y, strip in enumerate(self._strips) if strip != before[y]]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def redraw(self) -> None:
        """Draw again even if the size is unchanged."""
        self._painted_size = None
        self.refresh()

    def on_show(self) -> None:
        """Draw what has changed while the widget was hidden."""
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """Return a drawn row; after a change of size, draw all rows first."""
        if self._painted_size != self.size:
            self._strips, self._painted_size = self._draw(), self.size
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def _draw(self) -> list[Strip]:
        width, height = self.size
        if self._base is None:
            self._base = self.rich_style  # cached, as it takes a millisecond
        base = self._base
        try:
            rows = self._rows(width, height)
            strips = [_strip(self._textured(row), width, base) for row in rows]
        except Exception as error:  # noqa: BLE001  # the other widgets are still painted
            strips = [_strip([Segment(f" {self._fail(error)}")], width, base)]
        return strips + [Strip.blank(width, base)] * (height - len(strips))

    def _rows(self, width: int, height: int) -> Iterable[Row]:
        if not (width and height):
            return ()
        if self._failure:
            return ([Segment(f" {self._failure}")],)
        return islice(self.rows(width, height), height)

    def _textured(self, row: Row) -> Row:
        """Return the row with distinct glyphs, if the terminal has too few colours."""
        if not self._textures:
            return row
        return [
            Segment(text.translate(self._textures[style]), style)
            if style in self._textures
            else Segment(text, style)
            for text, style, _ in row
        ]

    def notify_style_update(self) -> None:
        """Draw in a new theme's colours; other style updates, such as of the focus, do nothing."""
        super().notify_style_update()
        if self._theme == self.app.theme:
            return
        self._theme = self.app.theme
        self._painted_size = None
        self._base = None
        self._inks.clear()
        self._textures.clear()

    def ink(self, name: str) -> Style:
        """Return the style of this name in the present theme, on the widget's background."""
        if name not in self._inks:
            own, theme = self.visual_style, self.app.current_theme
            ground = own.background
            if ground is None or ground.ansi is not None:
                # the terminal's own background: only known to be light or dark
                ground = inks.BLACK if theme.dark else inks.WHITE
            style = (own + inks.style(name, self.app.theme_variables, ground)).rich_style
            self._inks[name] = style
            if self._hues_are_few():
                self._textures[style] = inks.texture(name)
        return self._inks[name]

    def inked(self, parts: Parts) -> Row:
        """Return parts of text as segments."""
        return [Segment(text, self.ink(ink)) for text, ink in parts]

    def act(self, action: str) -> None:
        """Run an action of the app or of its screen."""
        self.app.call_later(self.app.run_action, action)

    def _hues_are_few(self) -> bool:
        app = self.app
        on_terminal = not app.is_headless  # a headless frame has all colours
        return app.no_color or (on_terminal and app.console.color_system in FEW_COLOURS)


def _strip(row: Row, width: int, base: Style) -> Strip:
    """Return the row at this width; segments without a style get the widget's own."""
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
