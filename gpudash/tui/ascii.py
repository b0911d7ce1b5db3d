"""The screen without Unicode, where everything stands where it stood."""

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from gpudash.ascii import as_ascii


class Ascii(LineFilter):
    """Takes Unicode from everything that is shown, whoever has painted it."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  # Textual's own signature
        """Return the segments in ASCII."""
        return [Segment(in_place(text), style, control) for text, style, control in segments]


def in_place(text: str) -> str:
    """Return the text in ASCII, as wide as it was."""
    return text if text.isascii() else set_cell_size(as_ascii(text), cell_len(text))
