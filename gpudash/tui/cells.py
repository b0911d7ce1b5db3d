"""Pieces of text that stand side by side: of a bar, and of a panel's border."""

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len

GAP = "  "


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of text; one with an action is a button."""

    parts: tuple[tuple[str, str], ...]
    """(text, ink), the ink one of `tui.widgets.painted.INKS`."""
    rank: int = 0
    """Where there is no room for all, the highest go first."""
    action: str = ""

    @property
    def width(self) -> int:
        """In terminal cells."""
        return sum(cell_len(text) for text, _ in self.parts)


def cell(text: str, ink: str = "text", *, rank: int = 0, action: str = "") -> Cell:
    """Return a cell of one part."""
    return Cell(parts=((text, ink),), rank=rank, action=action)


def fitting(cells: Sequence[Cell], width: int, gap: int = len(GAP)) -> list[Cell]:
    """Return the cells that fit side by side, in their order, the most important kept."""
    kept = list(cells)
    while kept and sum(one.width for one in kept) + gap * (len(kept) - 1) > width:
        worst = max(one.rank for one in kept)
        last = max(index for index, one in enumerate(kept) if one.rank == worst)
        del kept[last]
    return kept
