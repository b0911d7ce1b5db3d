"""A curve of braille cells, drawn by plotext, which only this module imports.

plotext draws only the curve. Frame, ticks and markers are gpudash's, so that their widths never
jitter. This module is imported after the first paint, as plotext is slow to import.
"""

import re
from types import SimpleNamespace
from typing import Any

from gpudash.tui import import_without
from gpudash.tui.charts.axes import Runs, TimeRange

UNUSED = {
    "PIL": None,  # for pictures
    "plotext._doc.doc": SimpleNamespace(docs=None),  # its manual
    "plotext._tests.run": SimpleNamespace(test=None),
    "_hashlib": None,  # OpenSSL's hashes: hashlib has others
}
"""Modules that plotext imports and does not need for a curve: 6 MB, and most of its import time."""
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
DOTS_PER_ROW = 4
"""Rows of dots in a braille cell."""

plotext = import_without(UNUSED, "plotext")


class _Marker(plotext.marker):  # type: ignore[misc, name-defined]  # no types
    """A marker shared by all points of the curve: plotext would copy it for each point."""

    def __copy__(self) -> "_Marker":
        return self


def _make_figure() -> Any:
    plotext.terminal.limit(False, False)  # the canvas is not the terminal
    figure = plotext.figure
    figure.axes(False)
    figure.legend(False)
    figure.canvas("default")
    figure.ruler("both", "both").frequency(0)
    return figure


_FIGURE = _make_figure()
_MARKER = _Marker("braille", plotext.pixel())


def curve(runs: Runs, top: float, time_range: TimeRange, width: int, height: int) -> list[str]:
    """Return `height` rows of `width` characters with the curve; `top` is the axis's end."""
    if width < 1 or height < 1:
        return []
    xs, ys, begins = _unit_points(runs, top, time_range, height)
    if not xs:
        return [" " * width] * height
    _FIGURE.clear.data()
    _FIGURE.plot_size(width, height)
    # plotext maps its limits to the centres of the outer cells: this maps 0 and 1 to the edges
    _FIGURE.ruler("x").lim(0.5 / width, 1 - 0.5 / width)
    _FIGURE.ruler("y").lim(0.5 / height, 1 - 0.5 / height)
    signal = _FIGURE.signal(xs, ys, marker=_MARKER).lines()
    for begin in begins:
        signal.line(begin, False)
    # draw() would also ask every point for its colour, which takes half of the time
    _FIGURE._signals._add(signal)  # noqa: SLF001  # instead of draw()
    rows = _ESCAPE.sub("", _FIGURE.build().string()).splitlines()[:height]
    return [row.ljust(width)[:width] for row in rows + [""] * (height - len(rows))]


def _unit_points(
    runs: Runs, top: float, time_range: TimeRange, height: int
) -> tuple[list[float], list[float], list[int]]:
    """Return x and y from 0 to 1, and the indices at which a new run begins.

    A point between two others in the same row of dots is left out: the curve looks the same, and
    plotext's cost is per point. Runs have finite values only: a NaN would end the process.
    """
    xs: list[float] = []
    ys: list[float] = []
    begins: list[int] = []
    levels = height * DOTS_PER_ROW
    begin_s, length_s = time_range.first * time_range.bin_s, time_range.length_s
    for run in runs:
        begins.append(begin := len(xs))
        for at_s, value in run:
            x = min(max((at_s - begin_s) / length_s, 0.0), 1.0)
            share = min(max(value / top, 0.0), 1.0)
            y = (min(int(share * levels), levels - 1) + 0.5) / levels
            if len(xs) - begin >= 2 and ys[-1] == ys[-2] == y:
                xs[-1] = x
            else:
                xs.append(x)
                ys.append(y)
    return xs, ys, begins
