"""The status line: a sentence of clauses, and a hint."""

from collections.abc import Iterator

from rich.cells import cell_len

from gpudash import format as fmt
from gpudash.tui.cells import Parts, fitted, whole
from gpudash.tui.widgets.bar import Bar

LEAST = 16
"""Fewest columns of the sentence."""


class StatusLine(Bar):
    """One cell with a sentence and a hint; the sentence loses clauses to make room for it."""

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # one row
        """Yield the one row."""
        for cell in self._cells:
            (sentence, style), (hint, _) = cell.parts
            room = width - 2
            shown = clauses_in(sentence, max(room - len(hint), LEAST))
            yield ((f" {fmt.clip(shown + hint, room)}", style),)


def clauses_in(sentence: str, width: int) -> str:
    """Return the clauses that fit uncut, or at least some words of the first one."""
    clauses = sentence.split(" · ")
    fits = cell_len(clauses[0]) <= width
    return whole(clauses, width) if fits else fitted(clauses[0], width).rstrip()
