"""The status line: one sentence, on as many rows as the stylesheet gives it."""

from collections.abc import Iterator

from rich.segment import Segment

from gpudash.ui.widgets.bar import Bar
from gpudash.ui.widgets.painted import Row


class StatusLine(Bar):
    """A sentence; what does not fit ends in `…`."""

    def rows(self, width: int, height: int) -> Iterator[Row]:  # noqa: ARG002  # one row
        """Yield the one row."""
        for cell in self._cells:
            for text, style in cell.parts:
                room = width - 2
                shown = text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"
                yield [Segment(f" {shown}", self.part(f"bar--{style}"))]
