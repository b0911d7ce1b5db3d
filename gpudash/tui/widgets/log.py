"""The log pane: what the worker prints, as plain text whatever it contains."""

from collections import deque
from collections.abc import Iterator, Sequence

from rich.cells import chop_cells
from rich.segment import Segment

from gpudash.format import plain
from gpudash.snapshot import KEPT_LINES
from gpudash.tui.widgets.painted import Row, Scrolled

LONGEST_LINE = 4000
"""Characters kept of one line; more is said to be missing, not shown."""


def kept(line: str) -> str:
    """Return a line as the pane keeps it: plain, and of bounded length."""
    if len(line) <= LONGEST_LINE:
        return plain(line)
    return f"{plain(line[:LONGEST_LINE])} … {len(line) - LONGEST_LINE:,} more characters"


class LogPane(Scrolled):
    """The last lines, wrapped; follows its end unless scrolled up."""

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._hidden_below = 0
        self.titled = True
        """False where a tab above names the pane already."""

    def add(self, lines: Sequence[str]) -> None:
        """Append lines; the oldest go when there are too many."""
        if lines:
            self.lines.extend(kept(line) for line in lines)
            if self._hidden_below:  # stay at what is being read
                self._hidden_below = min(self._hidden_below + len(lines), len(self.lines) - 1)
            self.repaint()

    def clear(self) -> None:
        """Forget all lines: they are told again."""
        self.lines.clear()
        self._hidden_below = 0
        self.repaint()

    def scroll_rows(self, direction: int) -> None:
        """Show earlier (-1) or later (+1) lines."""
        by = direction * max(self.size.height - 2, 1)
        self._hidden_below = min(max(self._hidden_below - by, 0), max(len(self.lines) - 1, 0))
        self.repaint()

    def rows(self, width: int, height: int) -> Iterator[Row]:
        """Yield the title and the end of the log."""
        hidden = f" · {self._hidden_below} newer below (pgdn)" if self._hidden_below else ""
        head = int(self.titled or bool(hidden))
        if head:
            yield [Segment(f" log{hidden}", self.ink("head"))]
        style = self.ink("dim")
        yield from ([Segment(f" {row}", style)] for row in self._tail(width - 2, height - head))

    def _tail(self, width: int, height: int) -> list[str]:
        """Return the last rows above what is hidden, wrapped to the width."""
        rows: list[str] = []
        for index in range(len(self.lines) - 1 - self._hidden_below, -1, -1):
            if len(rows) >= height or width < 1:
                break
            line = self.lines[index]
            rows = [*(chop_cells(line, width) if line else [""]), *rows]
        return rows[-height:] if height > 0 else []
