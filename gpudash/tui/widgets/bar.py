"""One row of cells: header and footer. A cell with an action can be clicked."""

from collections.abc import Iterator

from textual import events

from gpudash.tui.cells import Cell, Parts, placed, width_of
from gpudash.tui.widgets.painted import Painted


class Bar(Painted):
    """One row of cells, some of them at its right end."""

    cells: tuple[Cell, ...] = ()
    """What is shown from the left end on."""
    _right: tuple[Cell, ...] = ()

    def show(self, cells: tuple[Cell, ...], right: tuple[Cell, ...] = ()) -> None:
        """Update the cells; repaint if they changed."""
        if (cells, right) != (self.cells, self._right):
            self.cells, self._right = cells, right
            self.repaint()

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # a bar is one row
        """Yield the one row."""
        row: list[tuple[str, str]] = []
        for at, cell in placed(self.cells, self._right, width, margin=1, gap=2):
            row += [(" " * (at - width_of(row)), ""), *cell.parts]
        yield row

    def on_click(self, event: events.Click) -> None:
        """Run the action of the cell under the pointer."""
        for x, cell in placed(self.cells, self._right, self.size.width, margin=1, gap=2):
            if x <= event.x < x + cell.width and cell.action:
                self.act(cell.action)
