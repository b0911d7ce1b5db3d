"""The status line: a sentence, and what to do now."""

from collections.abc import Iterator

from rich.segment import Segment

from gpudash import format as fmt
from gpudash.tui.widgets.bar import Bar
from gpudash.tui.widgets.painted import Row

LEAST = 16
"""Columns the sentence keeps at any rate."""


class StatusLine(Bar):
    """One cell: a sentence, and a hint for which the sentence is cut."""

    def rows(self, width: int, height: int) -> Iterator[Row]:  # noqa: ARG002  # one row
        """Yield the one row; what does not fit ends in `…`."""
        for cell in self._cells:
            (sentence, style), (hint, _) = cell.parts
            room = width - 2
            shown = fmt.clip(sentence, max(room - len(hint), LEAST))
            yield [Segment(f" {fmt.clip(shown + hint, room)}", self.ink(style))]
