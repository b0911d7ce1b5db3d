"""Columns of eighth blocks over the time axis, for charts that are too low for curves."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from gpudash import format as fmt
from gpudash.present.axes import TimeRange
from gpudash.present.cells import Parts

ColumnCell: TypeAlias = tuple[str, str]
"""The character of a cell in a column, and its ink: of the lower part, or `lower/upper`."""
BLANK: ColumnCell = (" ", "")
IDLE = "idle"
"""The ink of time that nothing fills."""
CURSOR = "strong"
"""The ink of the mark that is seen over columns too."""
MIDDLE_FROM = 5
"""Rows from which the middle of the value axis has its number."""
CHARACTER, INK = itemgetter(0), itemgetter(1)


def column_rows(
    columns: Mapping[int, Sequence[ColumnCell]],
    top: float,
    time_range: TimeRange,
    rows: int,
    gutter: int,
    marks: Iterable[tuple[float, str]] = (),
    *,
    is_cut: bool = False,
) -> Iterator[Parts]:
    """Draw columns, of which the top row is the first; `is_cut` says that some are higher."""
    drawn = [columns.get(x, (BLANK,) * rows) for x in range(time_range.columns)]
    for at_s, ink in marks:
        x = time_range.column_of(at_s)
        drawn[x] = [_marked(one, ink) for one in drawn[x]]
    ticks = {rows // 2: top / 2} if rows >= MIDDLE_FROM else {}
    ticks |= {rows - 1: 0.0, 0: top}
    for y, row in enumerate(zip(*drawn, strict=True)):
        blocks = groupby(row, key=INK)
        axis = _axis(ticks.get(y), gutter, is_cut=is_cut and y == 0)
        yield (*axis, *(("".join(map(CHARACTER, same)), ink) for ink, same in blocks))


def _axis(value: float | None, gutter: int, *, is_cut: bool) -> Parts:
    if not gutter:
        return ()
    text = "" if value is None else fmt.compact(value)
    text = text if len(text) < gutter else ""  # numbers are not cut
    mark = "↑" if is_cut else "┤" if text else "│"
    return ((f"{text:>{gutter - 1}}{mark}", "faint"),)


def _marked(block: ColumnCell, ink: str) -> ColumnCell:
    """Return a block with a mark: the cursor is over all, and its hue stays visible."""
    character, hue = block[0], block[1].partition("/")[0]
    if ink != CURSOR:
        return ("┊", "faint") if character == " " else block
    filled = character not in " ·" and hue not in ("", IDLE, "faint")
    return "│", f"{CURSOR}/{hue}" if filled else CURSOR
