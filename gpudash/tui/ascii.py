"""The screen without Unicode: each character has one of ASCII in its place, as wide as it."""

import unicodedata
from functools import cache

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

LIKE = {
    "-": "─╴╶╌┄–—−▄↔",
    "|": "│┊┆",
    "+": "├┤┬┴┼╭╮╰╯┌┐└┘▆✓",
    ".": "▁▂▏▎▍░·•",
    ":": "▃▌▋▊▉▐▀▒",
    "=": "━▅≡‖",
    "*": "▇●",
    "#": "┃┏┓┗┛█■",
    "@": "▪",
    "%": "▓",
    "/": "▚",
    "x": "✗×",
    "o": "□○◌◦◉",
    ">": "▶▸→≥",
    "<": "◀◂←≤",
    "^": "▴↑⇧",
    "v": "▾↓",
    "~": "…±≈",
    "E": "⏎",
    "P": "⚑",
    "V": "√",
    "u": "µ",
    '"': "“”",
    "'": "°‘’",  # noqa: RUF001  # as above
}
IN_PLACE = {ord(character): like for like, characters in LIKE.items() for character in characters}
DOTS = " ..::****"
"""In the place of a braille cell, by how many of its eight dots are set."""


class Ascii(LineFilter):
    """Takes Unicode from everything that is shown, whoever has painted it."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  # Textual's own signature
        """Return the segments in ASCII."""
        return [Segment(as_ascii(text), style, control) for text, style, control in segments]


def as_ascii(text: str) -> str:
    """Return the text in ASCII, as wide as it was."""
    if text.isascii():
        return text
    in_ascii = "".join(map(_ascii_of, text.translate(IN_PLACE)))
    return set_cell_size(in_ascii, cell_len(text))


@cache
def _ascii_of(character: str) -> str:
    if character.isascii():
        return character
    if "\u2800" <= character <= "\u28ff":
        return DOTS[ord(character).bit_count() - ord("\u2800").bit_count()]
    letter = unicodedata.normalize("NFKD", character)[0]
    return (letter if letter.isascii() else "?").ljust(cell_len(character))[: cell_len(character)]
