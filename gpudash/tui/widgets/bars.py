"""The bars: header, footer, status line and the scrubber of a replay; a click runs an action."""

from collections.abc import Iterator

from rich.cells import cell_len
from textual import events

from gpudash import format as fmt
from gpudash.present.cells import Cell, Parts, clauses_in, placed, width_of
from gpudash.protocol.session import Playback
from gpudash.tui.widgets.painted import Painted


class Bar(Painted):
    """One row of cells, some of them at its right end."""

    cells: tuple[Cell, ...] = ()
    """What is shown from the left end on."""
    _right: tuple[Cell, ...] = ()

    def show(self, cells: tuple[Cell, ...], right: tuple[Cell, ...] = ()) -> None:
        if (cells, right) != (self.cells, self._right):
            self.cells, self._right = cells, right
            self.repaint()

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # a bar is one row
        row: list[tuple[str, str]] = []
        for at, cell in placed(self.cells, self._right, width, margin=1, gap=2):
            row += [(" " * (at - width_of(row)), ""), *cell.parts]
        yield row

    def on_click(self, event: events.Click) -> None:
        for x, cell in placed(self.cells, self._right, self.size.width, margin=1, gap=2):
            if x <= event.x < x + cell.width and cell.action:
                self.act(cell.action)


LEAST = 16
"""Fewest columns of the sentence."""


class StatusLine(Bar):
    """One cell with a sentence and a hint; the sentence loses clauses to make room for it."""

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # a bar is one row
        for cell in self.cells:
            (sentence, style), (hint, _) = cell.parts
            shown = clauses_in(sentence.split(" · "), max(width - 2 - len(hint), LEAST))
            yield ((f" {fmt.clip(shown + hint, width - 2)}", style),)


class Scrubber(Painted):
    """One row: times at both ends, the markers and the position between them."""

    _playback = Playback(name="")

    def show(self, playback: Playback | None) -> None:
        if playback is not None and playback != self._playback:
            self._playback = playback
            self.repaint()

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # one row
        first, cells, length = self._line(width)
        line = ["─"] * cells
        marked = [(self._place(at_s, cells), label) for at_s, label in self._playback.markers]
        for place, _ in marked:
            line[place] = "┊"
        here = self._place(self._playback.position_s, cells)
        line[here] = "●"
        for place, label in marked:
            shown = fmt.plain(label).rsplit("=", 1)[-1]
            room = "".join(line[place + 1 : place + 2 + len(shown)])
            if cell_len(shown) == len(shown) and room == "─" * (len(shown) + 1):
                line[place + 1 : place + 1 + len(shown)] = shown
        before, after = "".join(line[:here]), "".join(line[here + 1 :])
        yield (f"{first}├{before}", "dim"), ("●", "busy"), (f"{after}┤{length}", "dim")

    def on_click(self, event: events.Click) -> None:
        first, cells, _ = self._line(self.size.width)
        share = (event.x - len(first) - 1) / max(cells - 1, 1)
        position_s = min(max(share, 0.0), 1.0) * self._playback.length_s
        self.act(f"screen.seek_to({position_s!r})")

    def _line(self, width: int) -> tuple[str, int, str]:
        """Return the text before the line, the line's width, and the text after it."""
        first, length = f" {fmt.clock(0)} ", f" {fmt.clock(self._playback.length_s)} "
        return first, max(width - len(first) - len(length) - 2, 1), length

    def _place(self, at_s: float, cells: int) -> int:
        share = at_s / self._playback.length_s if self._playback.length_s > 0 else 0.0
        return round(min(max(share, 0.0), 1.0) * (cells - 1))
