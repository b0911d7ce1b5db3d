"""The base of all widgets: paints rows as strips. It alone knows rich's segments and styles."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice, starmap

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from gpudash.format import as_ascii
from gpudash.present.cells import Parts, width_of
from gpudash.tui import inks
from gpudash.tui.containment import Contained, PartFailed

FEW_COLOURS = (None, "standard")
"""rich's colour systems with sixteen colours or none."""
FULL = re.compile("(█+)")


class Painted(Contained, Widget):
    """A widget that draws itself as rows of text."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self._strips: list[Strip] = []
        self._painted_size: Size | None = None
        self._theme = ""
        self._inks: dict[str, Style] = {}
        self._failure: str | None = None  # why the last update failed

    def rows(self, width: int, height: int) -> Iterable[Parts]:
        """Return the rows; anything beyond `width` or `height` is cut off."""
        raise NotImplementedError  # no ABC: Textual has a metaclass of its own

    @contextmanager
    def contained(self) -> Iterator[None]:
        """Update the widget in the block; if it raises, the widget shows that until it succeeds."""
        before, self._failure = self._failure, None
        try:
            yield
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
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """Return a drawn row; after a change of size, draw all rows first."""
        if self._painted_size != self.size:
            self._strips, self._painted_size = self._draw(), self.size
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def _draw(self) -> list[Strip]:
        width, height = self.size
        try:
            strips = [self._strip(row, width) for row in self._rows(width, height)]
        except Exception as error:  # noqa: BLE001  # the other widgets are still painted
            strips = [self._strip(((f" {self._fail(error)}", ""),), width)]
        return strips + [self._strip((), width)] * (height - len(strips))

    def _rows(self, width: int, height: int) -> Iterable[Parts]:
        if not (width and height):
            return ()
        if self._failure:
            return (((f" {self._failure}", ""),),)
        return islice(self.rows(width, height), height)

    def _strip(self, row: Parts, width: int) -> Strip:
        wide, segments = width_of(row), self._lettered if self._hues_are_few() else self._coloured
        parts = (*row, (" " * (width - wide), ""))
        return Strip(chain.from_iterable(starmap(segments, parts)), max(width, wide)).crop(0, width)

    def _coloured(self, text: str, name: str) -> Iterator[Segment]:
        yield Segment(text, self._ink(name))

    def _lettered(self, text: str, name: str) -> Iterator[Segment]:
        """Yield letters for the hue; in full cells they are reversed, as those of lanes."""
        for piece in FULL.split(text):
            shown, ink = inks.lettered(piece, name), self._ink(name)
            is_full = piece.startswith("█") and shown != piece
            yield Segment(shown, ink + Style(reverse=True) if is_full else ink)

    def notify_style_update(self) -> None:
        """Draw in a new theme's colours; other style updates, such as of the focus, do nothing."""
        super().notify_style_update()
        if self._theme == self.app.theme:
            return
        self._theme = self.app.theme
        self._painted_size = None
        self._inks.clear()

    def _ink(self, name: str) -> Style:
        if name not in self._inks:
            pair = name.split("/")
            self._inks[name] = self._pair(*pair) if len(pair) == 2 else self._single(name)
        return self._inks[name]

    def _single(self, name: str) -> Style:
        if not name:
            return self.rich_style
        own, theme = self.visual_style, self.app.current_theme
        ground = own.background
        if ground is None or ground.ansi is not None:
            # the terminal's own background: only known to be light or dark
            ground = inks.BLACK if theme.dark else inks.WHITE
        if self._hues_are_few() and name.startswith(inks.REVERSED):
            return self.rich_style + Style(bold=True, reverse=True)
        if self._hues_are_few() and name.startswith("fill-"):
            return self._ink(inks.filled(name)) + Style(reverse=True)
        return (own + inks.style(name, self.app.theme_variables, ground)).rich_style

    def _pair(self, above: str, behind: str) -> Style:
        hues = {}
        for name in (above, behind):
            style = self._ink(name)
            hues[name] = style.bgcolor if inks.INKS[name].printed_on else style.color
        return self._ink(above) + Style(color=hues[above], bgcolor=hues[behind])

    def scroll_rows(self, direction: int) -> None:
        """Show earlier rows (-1) or later ones (+1)."""

    def wheeled(self, direction: int, x: int) -> None:  # noqa: ARG002  # any column
        """Handle a turn of the mouse wheel at this column: up (-1) or down (+1)."""
        self.scroll_rows(direction)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.wheeled(-1, event.x)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.wheeled(1, event.x)

    def act(self, action: str) -> None:
        self.app.call_later(self.app.run_action, action)

    def _hues_are_few(self) -> bool:
        app = self.app
        on_terminal = not app.is_headless  # a headless frame has all colours
        return app.no_color or (on_terminal and app.console.color_system in FEW_COLOURS)


class Ascii(LineFilter):
    """A line filter that replaces Unicode in everything that is shown."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  # Textual's own signature
        return [Segment(in_place(text), style, control) for text, style, control in segments]


def in_place(text: str) -> str:
    """Return the text in ASCII, with the same width."""
    return text if text.isascii() else set_cell_size(as_ascii(text), cell_len(text))
