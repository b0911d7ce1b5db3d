"""One row of cells: header, footer and tabs. A cell with an action can be clicked."""

from collections.abc import Iterator

from rich.segment import Segment
from textual import events

from gpudash.tui.cells import GAP, Cell, fitting
from gpudash.tui.widgets.painted import Painted, Row


class Bar(Painted):
    """One row of cells."""

    def __init__(self, *, id: str) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id, classes="bar")
        self._cells: tuple[Cell, ...] = ()

    def show(self, cells: tuple[Cell, ...]) -> None:
        """Take new cells; nothing is painted where nothing changed."""
        if cells != self._cells:
            self._cells = cells
            self.repaint()

    def rows(self, width: int, height: int) -> Iterator[Row]:  # noqa: ARG002  # a bar is one row
        """Yield the one row."""
        row: Row = [Segment(" ")]
        for cell in fitting(self._cells, width - 2):
            row += [Segment(text, self.ink(style)) for text, style in cell.parts]
            row.append(Segment(GAP))
        yield row

    def on_click(self, event: events.Click) -> None:
        """Run the action of the cell under the pointer."""
        x = event.x - 1
        for cell in fitting(self._cells, self.size.width - 2):
            if 0 <= x < cell.width:
                if cell.action:
                    self.app.call_later(self.app.run_action, cell.action)
                return
            x -= cell.width + len(GAP)
