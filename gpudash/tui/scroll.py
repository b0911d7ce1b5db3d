"""Where a list that grows at its end is being read."""

import msgspec


class Scroll(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen row and what is in sight around it; follows the end until it is moved."""

    row: int | None = None
    """None: the last one, also when more are added."""
    first: int = 0
    """The topmost row in sight, unless the end is followed."""

    def chosen(self, count: int) -> int:
        """Return the chosen one of so many rows; -1 of none."""
        return count - 1 if self.row is None else min(self.row, count - 1)

    def in_sight(self, count: int, height: int) -> range:
        """Return the rows shown where there is room for `height` of `count`."""
        last_first = max(count - height, 0)
        first = last_first if self.row is None else min(self.first, last_first)
        return range(first, min(first + height, count))

    def at(self, row: int, count: int, height: int, *, pinned: int = 0, least: int = 0) -> "Scroll":
        """Choose a row; scroll no further than to bring it into sight.

        So many `pinned` rows stand in the place of the topmost ones. Rows before `least` cannot
        be chosen.
        """
        row, pinned = max(row, least), min(pinned, height - 1)
        if row >= count - 1:
            return Scroll()
        above = max(self.in_sight(count, height).start, row - height + 1)
        return Scroll(row=row, first=min(above, max(row - pinned, 0)))


def first_in_sight(first: int, cursor: int, count: int, height: int) -> int:
    """Return which of `count` rows to begin with, `first` if the cursor can be seen so."""
    first = max(first, cursor - height + 1)
    return max(min(first, cursor, count - height), 0)
