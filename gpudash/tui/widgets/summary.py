"""The summary of a profile: blocks side by side as they fit, and the widget that scrolls them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from msgspec.structs import replace
from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.present.cells import Parts, bar_of, beside, fitted, rule
from gpudash.trace.summary import PHASES
from gpudash.trace.text import Figure, Section
from gpudash.tui.widgets.log import wrapped
from gpudash.tui.widgets.painted import Painted
from gpudash.tui.widgets.timeline import WAIT, hue_of

COLUMNS = (0, 76, 240)
"""Widths from which there is one column of blocks, or two, or three."""
VALUE, SHARE = 9, 6
LABEL = 62
"""Most of a column's width that names may take, in percent: bars need some."""
BAR, LONGEST_BAR = 36, 60
"""Columns of a bar before there are any behind it, and most of one."""
LEAST_MORE = 8
"""Fewest columns of what stands behind a bar."""
FEWEST, FEW, MOST = 3, 6, 20
"""Rows of a list where there is little room, beside other blocks, and on a page of its own."""
LITTLE = 14
"""Rows that are little room."""
ALL = 1_000_000
"""More rows than any table has."""


def summary_rows(blocks: Sequence[Section], width: int, height: int = ALL) -> Iterator[Parts]:
    """Yield the blocks in columns of about the same height; those that do not fit are left out."""
    count = sum(width >= least for least in COLUMNS)
    each = width // count
    columns: list[list[Section]] = [[] for _ in range(count)]
    free = [height] * count
    few = MOST if height == ALL else FEW if height >= LITTLE else FEWEST
    for block in [_wrapped(block, each - 4) for block in blocks]:
        place = max(range(count), key=lambda number: free[number])
        needed = 1 + len(block.cut(few).rows)
        if height > FEWEST and free[place] >= min(needed, FEWEST):
            columns[place].append(block)
            free[place] -= needed
    painted = [
        list(chain.from_iterable(_block_rows(one, each) for one in _grown(own, few, left)))
        for own, left in zip(columns, free, strict=True)
    ]
    rows: Iterable[Parts] = painted[0]
    for number, column in enumerate(painted[1:], 1):
        rows = beside(rows, column, each * number)
    yield from rows


def _wrapped(block: Section, width: int) -> Section:
    rows = (
        [row] if row.value else [Figure(what=line) for line in wrapped(row.what, max(width, 1))]
        for row in block.rows
    )
    return replace(block, rows=tuple(chain.from_iterable(rows)))


def _grown(blocks: Sequence[Section], few: int, left: int) -> Iterator[Section]:
    """Yield a column's blocks; the first lists take the rows that are left, if they are few."""
    left = 0 if left > ALL // 2 else left
    for block in blocks:
        cut = block.cut(min(few + max(left, 0), MOST))
        left -= len(cut.rows) - len(block.cut(few).rows)
        yield cut


def _block_rows(block: Section, width: int) -> Iterator[Parts]:
    rows = block.rows
    yield rule(block.title, width)
    valued = [row for row in rows if row.value]
    shares = SHARE * any(row.share for row in valued)
    names = max((cell_len(row.what) for row in valued), default=0)
    label = max(min(names, width - 3 - VALUE - shares, width * LABEL // 100), 1)
    room = width - 3 - label - VALUE - shares - 2
    more = max((cell_len(row.more) for row in valued if row.more), default=-2)
    longest = min(max(room - 2 - max(more, LEAST_MORE * (more > 0)), BAR), room, LONGEST_BAR)
    full_ms = block.full_ms or max((row.ms or 0.0 for row in valued), default=0.0)
    for row in rows:
        if not row.value:
            yield ((f"   {row.what}", "text"),)
            continue
        bar = _bar(row, full_ms, longest)
        left = room - longest - 2 if bar else room
        behind = fmt.clip(row.more, left) if left >= LEAST_MORE else ""
        pad = longest - cell_len(bar[0]) + 2 if bar else 0
        yield (
            (f"   {fitted(fmt.clip(row.what, label), label)}", "text"),
            (f"{row.value:>{VALUE}}", "strong"),
            (f"{row.share:>{shares}}" if shares else "", "dim"),
            ("  ", "text"),
            *((bar,) if bar else ()),
            (f"{' ' * pad}{behind}", "dim"),
        )


def _bar(row: Figure, full_ms: float, width: int) -> tuple[str, str] | None:
    if row.ms is None or full_ms <= 0 or width < 1:
        return None
    share = row.ms / full_ms
    if row.hue in ("data", "idle"):
        ink = "line-0" if row.hue == "data" else "idle"
        return WAIT * round(share * width), ink
    phase = next((one for one in PHASES if one == row.hue), None)
    return bar_of(share, width), f"mark-{row.hue}" if phase is None else f"line-{hue_of(phase)}"


Painter: TypeAlias = Callable[[int], Iterable[Parts]]
"""A function that returns all rows for a width."""
COPIED_COLUMNS = 120


class Tables(Painted):
    """Shows the rows of a painter."""

    def __init__(self) -> None:
        super().__init__(id="tables")
        self._painter: Painter = lambda _width: ()
        self._first = 0

    def show(self, painter: Painter) -> None:
        self._painter, self._first = painter, 0
        self.redraw()

    def scroll_rows(self, direction: int) -> None:
        width, height = self.size
        beyond = sum(1 for _ in self._painter(width)) - height
        self._first = max(min(self._first + direction, beyond), 0)
        self.repaint()

    @property
    def text(self) -> str:
        rows = self._painter(COPIED_COLUMNS)
        return "\n".join("".join(text for text, _ in row).rstrip() for row in rows)

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # the base cuts them
        yield from list(self._painter(width))[self._first :]
