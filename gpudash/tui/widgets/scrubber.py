"""The scrubber: the time line of a recording with its markers; a click seeks."""

from collections.abc import Iterator

from rich.cells import cell_len
from textual import events

from gpudash import format as fmt
from gpudash.protocol.session import Playback
from gpudash.tui.cells import Parts
from gpudash.tui.widgets.painted import Painted


class Scrubber(Painted):
    """One row: times at both ends, the markers and the position between them."""

    _playback = Playback(name="")

    def show(self, playback: Playback | None) -> None:
        """Update the position; repaint if it changed."""
        if playback is not None and playback != self._playback:
            self._playback = playback
            self.repaint()

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # one row
        """Yield the one row."""
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
        """Seek to the position under the pointer."""
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
