"""The screen in ASCII, in an unchanged layout."""

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from gpudash.ascii import as_ascii


class Ascii(LineFilter):
    """A line filter that replaces Unicode in everything that is shown."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  # Textual's own signature
        """Return the segments in ASCII."""
        return [Segment(in_place(text), style, control) for text, style, control in segments]


def in_place(text: str) -> str:
    """Return the text in ASCII, with the same width."""
    return text if text.isascii() else set_cell_size(as_ascii(text), cell_len(text))
