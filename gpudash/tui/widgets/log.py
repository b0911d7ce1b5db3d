"""The log: what the worker prints, as plain text whatever it contains."""

import re
from collections.abc import Iterator, Sequence

from rich.cells import chop_cells

from gpudash.format import plain
from gpudash.tui.cells import Parts

LONGEST_LINE = 4000
"""Characters kept of one line; more is said to be missing, not shown."""
TROUBLE = re.compile(r"gpudash: |Traceback |(\S+:\d+: )?[\w.]*(Error|Exception|Warning)\b: ?")
"""How a line begins that says that something is wrong."""


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
        wrapped = chop_cells(line, width - 2) if line else [""]
        rows += [(f" {row}", line_ink) for row in reversed(wrapped)]
    yield from ((row,) for row in reversed(rows[:height]))
