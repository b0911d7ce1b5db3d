"""The scroll position of a list that grows at its end."""

import msgspec


class Scroll(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen row and the topmost visible one; follows the end until it is moved."""

    row: int | None = None
    """The chosen row; None: always the last one."""
    first: int = 0
    """The topmost visible row, unless the end is followed."""

    def chosen(self, count: int) -> int:
        """Return the chosen one of `count` rows; -1 without rows."""
        return count - 1 if self.row is None else min(self.row, count - 1)

    def in_sight(self, count: int, height: int) -> range:
        """Return the visible rows, at most `height` of `count`."""
        last_first = max(count - height, 0)
        first = last_first if self.row is None else min(self.first, last_first)
        return range(first, min(first + height, count))

    def at(self, row: int, count: int, height: int, *, least: int = 0) -> "Scroll":
        """Return the position with this row chosen, scrolled by as little as shows it.

        Rows before `least` cannot be chosen.
        """
        row = max(row, least)
        if row >= count - 1:
            return Scroll()
        above = max(self.in_sight(count, height).start, row - height + 1)
        return Scroll(row=row, first=min(above, row))


def first_in_sight(first: int, cursor: int, count: int, height: int) -> int:
    """Return the topmost of `count` rows to show: `first`, if the cursor is visible with it."""
    first = max(first, cursor - height + 1)
    return max(min(first, cursor, count - height), 0)
