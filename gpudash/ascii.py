"""ASCII in place of Unicode: each character is replaced by ASCII of the same width."""

import unicodedata
from functools import cache

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
    "'": "‘’",  # noqa: RUF001  # as above
    " ": "°",
}
IN_PLACE = {ord(character): like for like, characters in LIKE.items() for character in characters}
DOTS = " ..::****"
"""Replacement of a braille cell, by the number of its dots that are set (0 to 8)."""


def as_ascii(text: str) -> str:
    """Return the text in ASCII."""
    return text if text.isascii() else "".join(map(_ascii_of, text.translate(IN_PLACE)))


@cache
def _ascii_of(character: str) -> str:
    if character.isascii():
        return character
    if "\u2800" <= character <= "\u28ff":
        return DOTS[ord(character).bit_count() - ord("\u2800").bit_count()]
    letter = unicodedata.normalize("NFKD", character)[0]
    wide = unicodedata.east_asian_width(character) in "WF"
    return (letter if letter.isascii() else "?") + " " * wide
