"""Pieces of text side by side: the rows of all widgets, cells for bars and borders, scrolling."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import TypeAlias

import msgspec
from rich.cells import cell_len, set_cell_size

from gpudash import format as fmt

LEVELS = "▁▂▃▄▅▆▇"
"""Levels from low to high; none fills a whole cell, so that rows stay separate."""
EIGHTHS = " ▏▎▍▌▋▊▉"
BLOCKS = " ▁▂▃▄▅▆▇█"
"""A cell filled from below, by eighths."""
Parts: TypeAlias = Sequence[tuple[str, str]]
"""(text, ink) side by side. An ink is one of `tui.inks.INKS`, or empty: the widget's own.

`one/other` is the first ink with the hue of the other one behind it.
"""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of text; one with an action is a button."""

    parts: Parts
    rank: int = 0
    """Where there is no room for all cells, those of the highest rank are left out first."""
    action: str = ""

    @property
    def width(self) -> int:
        return width_of(self.parts)


def width_of(parts: Parts) -> int:
    return sum(cell_len(text) for text, _ in parts)


def exactly(parts: Parts, width: int) -> Parts:
    kept, room = [], width
    for text, ink in parts:
        kept.append((text if cell_len(text) <= room else set_cell_size(text, room), ink))
        room -= cell_len(kept[-1][0])
    return (*kept, (" " * room, ""))


def beside(left: Iterable[Parts], right: Iterable[Parts], width: int) -> Iterator[Parts]:
    """Let the rows on the left take `width` columns."""
    for one, other in zip_longest(left, right, fillvalue=()):
        yield (*exactly(one, width), *other)


def cell(text: str, ink: str = "text", *, rank: int = 0, action: str = "") -> Cell:
    return Cell(parts=((text, ink),), rank=rank, action=action)


def fitting(cells: Sequence[Cell], width: int, gap: int = 2) -> list[Cell]:
    """Leave out the cells of the highest rank first."""
    kept = list(cells)
    while kept and sum(one.width for one in kept) + gap * (len(kept) - 1) > width:
        _, last = max((one.rank, index) for index, one in enumerate(kept))
        del kept[last]
    return kept


def cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1)}…" if width > 0 else ""


def value_in(text: str, width: int) -> str:
    """Leave a number whole, or leave it out."""
    if cell_len(text) <= width:
        return text
    return "…" if any(map(str.isdigit, text)) else cut(text, width)


def whole(clauses: Iterable[str], width: int, between: str = " · ") -> str:
    """Return the clauses that fit uncut, in order, joined by `between`."""
    shown = ""
    for clause in clauses:
        longer = f"{shown}{between}{clause}" if shown else clause
        shown = longer if cell_len(longer) <= width else shown
    return shown


def clauses_in(clauses: Sequence[str], width: int, between: str = " · ") -> str:
    """Return the first clause, or some of its words, and of the later ones those that fit."""
    first = "".join(clauses[:1])
    fits = cell_len(first) <= width
    return whole(clauses, width, between) if fits else fitted(first, width).rstrip()


def fitted(text: str, width: int) -> str:
    """Pad the text to the width, or cut it: `…` stands for missing words."""
    if cell_len(text) > width:
        kept = set_cell_size(text, width - 1) if width > 1 else ""
        whole_words = kept.rpartition(" ")[0]  # a number is not cut in the middle
        text = f"{whole_words}…" if whole_words else fmt.clip(text, len(kept) + 1)
    return set_cell_size(text, width)


def rule(title: str, width: int) -> Parts:
    text = fitted(title, min(cell_len(title), max(width - 4, 0)))
    return (" ─ ", "border"), (text, "head"), (f" {'─' * (width - cell_len(text) - 4)}", "border")


def level_of(share: float) -> str:
    """Return the character that is filled up to this share of its height."""
    level = int(min(max(share, 0.0), 1.0) * len(LEVELS))
    return LEVELS[min(level, len(LEVELS) - 1)]


def bar_of(share: float, width: int) -> str:
    """Draw the share in eighths of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * max(width, 0) * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def placed(
    left: Sequence[Cell], right: Sequence[Cell], width: int, *, margin: int, gap: int
) -> Iterator[tuple[int, Cell]]:
    """Yield (column, cell); both ends have a free `margin`, and two cells a `gap` between them."""
    kept = fitting([*left, *right], width - 2 * margin, gap)
    on_right = [one for one in kept if any(one is other for other in right)]
    x = margin
    for one in kept[: len(kept) - len(on_right)]:
        yield x, one
        x += one.width + gap
    x = width - margin + gap - sum(one.width + gap for one in on_right)
    for one in on_right:
        yield x, one
        x += one.width + gap


class CellRow:
    """A row of cells that can be painted over."""

    def __init__(self, width: int, fill: str = " ", ink: str = "text") -> None:
        self._text = [fill] * width
        self._inks = [ink] * width

    def put(self, column: int, text: str, ink: str) -> None:
        """Leave out characters beyond the ends."""
        for at, character in enumerate(text, column):
            if 0 <= at < len(self._text):
                self._text[at], self._inks[at] = character, ink

    def mark(self, column: int, glyph: str) -> None:
        """Put a glyph into a cell that has no character, and keep the cell's ink."""
        if 0 <= column < len(self._text) and self._text[column] == " ":
            self._text[column] = glyph

    def is_free(self, begin: int, end: int) -> bool:
        return begin >= 0 and end <= len(self._text) and set(self._text[begin:end]) <= {" "}

    @property
    def parts(self) -> Parts:
        grouped = groupby(zip(self._text, self._inks, strict=True), key=lambda cell: cell[1])
        return tuple(("".join(text for text, _ in cells), ink) for ink, cells in grouped)


class Scroll(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen row and the topmost visible one; follows the end until it is moved."""

    row: int | None = None
    """The chosen row; None: always the last one."""
    first: int = 0
    """The topmost visible row, unless the end is followed."""

    def chosen(self, count: int) -> int:
        """-1 without rows."""
        return count - 1 if self.row is None else min(self.row, count - 1)

    def in_sight(self, count: int, height: int) -> range:
        last_first = max(count - height, 0)
        first = last_first if self.row is None else min(self.first, last_first)
        return range(first, min(first + height, count))

    def at(self, row: int, count: int, height: int, *, least: int = 0) -> "Scroll":
        """Scroll by as little as shows the row; rows before `least` cannot be chosen."""
        row = max(row, least)
        if row >= count - 1:
            return Scroll()
        above = max(self.in_sight(count, height).start, row - height + 1)
        return Scroll(row=row, first=min(above, row))


def following(texts: Sequence[str], here: int, sought: str) -> int | None:
    """Return the next text after `here` with what is sought, wrapping around."""
    order = (*range(here + 1, len(texts)), *range(min(here + 1, len(texts))))
    sought = sought.casefold()
    return next((index for index in order if sought in texts[index].casefold()), None)


def first_in_sight(first: int, cursor: int, count: int, height: int) -> int:
    """Return the topmost of `count` rows to show: `first`, if the cursor is visible with it."""
    first = max(first, cursor - height + 1)
    return max(min(first, cursor, count - height), 0)
