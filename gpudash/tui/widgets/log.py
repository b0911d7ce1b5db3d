"""The log: what the worker prints, as plain text whatever it contains."""

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells

from gpudash.format import plain
from gpudash.tui.cells import Parts

LONGEST_LINE = 4000
"""Characters kept of one line; more is said to be missing, not shown."""
TROUBLE = re.compile(r"gpudash: |Traceback |(\S+:\d+: )?[\w.]*(Error|Exception|Warning)\b: ?")
"""How a line begins that says that something is wrong."""
PIECE = re.compile(r"\s*[^\s/]+/*|\s*/+|\s+")
"""What a row is not broken within: a word, or a part of a path."""


def kept(line: str) -> str:
    """Return a line as the pane keeps it: plain, and of bounded length."""
    if len(line) <= LONGEST_LINE:
        return plain(line)
    return f"{plain(line[:LONGEST_LINE])} … {len(line) - LONGEST_LINE:,} more characters"


def is_trouble(line: str) -> bool:
    """Tell whether a line is a warning or an error."""
    return TROUBLE.match(line) is not None


def log_rows(
    lines: Sequence[str], last: int, width: int, height: int, ink: str = "dim"
) -> Iterator[Parts]:
    """Yield the lines up to number `last`, wrapped: as many as there is room for."""
    rows: list[tuple[str, str]] = []  # the lowest first
    while last >= 0 and len(rows) < height and width > 2:
        line, last = lines[last], last - 1
        line_ink = "bad" if is_trouble(line) else ink
        rows += [(f" {row}", line_ink) for row in reversed(_wrapped(line, width - 2))]
    yield from ((row,) for row in reversed(rows[:height]))


def _wrapped(line: str, width: int) -> list[str]:
    """Return the rows of a line, broken between words, all as far in as the first one."""
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
