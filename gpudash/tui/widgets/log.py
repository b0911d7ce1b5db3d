"""Rows of the log: printed lines as plain text, without control characters."""

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells

from gpudash.format import plain
from gpudash.present.cells import Parts

LONGEST_LINE = 4000
"""Most characters kept of a line; the number of the others is shown."""
TROUBLE = re.compile(r"gpudash: |Traceback |(\S+:\d+: )?[\w.]*(Error|Exception|Warning)\b: ?")
"""The beginning of a warning or an error."""
PIECE = re.compile(r"\s*[^\s/]+/*|\s*/+|\s+")
"""A piece that is not wrapped: a word, or a part of a path."""


def kept(line: str) -> str:
    """Return a line as the pane keeps it: plain text of limited length."""
    if len(line) <= LONGEST_LINE:
        return plain(line)
    return f"{plain(line[:LONGEST_LINE])} … {len(line) - LONGEST_LINE:,} more characters"


def is_trouble(line: str) -> bool:
    return TROUBLE.match(line) is not None


def log_rows(
    lines: Sequence[str], last: int, width: int, height: int, ink: str = "dim"
) -> Iterator[Parts]:
    """Yield the lines up to number `last`, wrapped, as many as fit."""
    rows: list[tuple[str, str]] = []  # the lowest first
    while last >= 0 and len(rows) < height and width > 2:
        line, last = lines[last], last - 1
        line_ink = "bad" if is_trouble(line) else ink
        rows += [(f" {row}", line_ink) for row in reversed(wrapped(line, width - 2))]
    yield from ((row,) for row in reversed(rows[:height]))


def wrapped(line: str, width: int) -> list[str]:
    """Give all rows the line's indentation."""
    if cell_len(line) <= width:
        return [line]
    words = line.lstrip()
    margin = line[: min(len(line) - len(words), width // 2)]
    rows, room = [""], width - len(margin)
    for piece in PIECE.findall(words):
        is_next = rows[-1] and cell_len(rows[-1] + piece.rstrip()) > room
        rows += (
            chop_cells(piece.lstrip(), room) if is_next else chop_cells(rows.pop() + piece, room)
        )
    return [f"{margin}{row}" for row in rows]
