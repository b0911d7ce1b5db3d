"""The status line: clauses, and what to do now."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.segment import Segment

from gpudash import format as fmt
from gpudash.tui.cells import fitted, whole
from gpudash.tui.widgets.bar import Bar
from gpudash.tui.widgets.painted import Row

LEAST = 16
"""Columns the sentence keeps at any rate."""


class StatusLine(Bar):
    """One cell: a sentence, and a hint for which the sentence loses its last clauses."""

    def rows(self, width: int, height: int) -> Iterator[Row]:  # noqa: ARG002  # one row
        """Yield the one row."""
        for cell in self._cells:
            (sentence, style), (hint, _) = cell.parts
            room = width - 2
            shown = clauses_in(sentence, max(room - len(hint), LEAST))
            yield [Segment(f" {fmt.clip(shown + hint, room)}", self.ink(style))]


def clauses_in(sentence: str, width: int) -> str:
    """Return the clauses that fit as a whole; of the first at least some words."""
    clauses = sentence.split(" · ")
    fits = cell_len(clauses[0]) <= width
    return whole(clauses, width) if fits else fitted(clauses[0], width).rstrip()
