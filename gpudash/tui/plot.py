"""Lines on a canvas of braille cells: the only module that talks to plotext.

plotext draws nothing but the lines. Frame, ticks, legend and markers are ours, so that
their widths never jitter and cells are painted without another parse.
Importing this module imports plotext (about 0.1 s): it is done after the first paint.
"""

import importlib
import re
import sys
from collections.abc import Sequence
from itertools import repeat
from types import ModuleType
from typing import Any, TypeAlias

import msgspec

from gpudash.tui.axes import Runs, TimeRange

Cell: TypeAlias = tuple[str, int | None]
"""A character and the index of the line it belongs to; None where it is blank."""
Canvas: TypeAlias = list[list[Cell]]


def _import_plotext() -> ModuleType:
    """Import it without PIL, which it loads where it is installed, for pictures."""
    absent = "PIL" not in sys.modules
    if absent:
        sys.modules["PIL"] = None  # type: ignore[assignment]  # Python's way to make it fail
    try:
        return importlib.import_module("plotext")
    finally:
        if absent:
            del sys.modules["PIL"]


_COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
DOTS_PER_ROW = 4
"""Of a braille cell."""
_BLANK: Cell = (" ", None)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One series, cut to the chart's width, and the value at the top of its axis."""

    runs: Runs
    top: float


plotext = _import_plotext()


class _Marker(plotext.marker):  # type: ignore[misc, name-defined]  # no types
    """A marker that all points of a line share: plotext would copy it for each."""

    def __copy__(self) -> "_Marker":
        return self


def _make_figure() -> Any:
    plotext.terminal.limit(False, False)  # our canvas is not the terminal
    figure = plotext.figure
    figure.axes(False)
    figure.legend(False)
    figure.canvas("default")
    figure.ruler("both", "both").frequency(0)
    return figure


_FIGURE = _make_figure()
_MARKERS = [
    _Marker("braille", plotext.pixel(foreground=number + 1))  # 0 is plotext's "no colour"
    for number in range(8)
]


def draw(lines: Sequence[Line], time_range: TimeRange, width: int, height: int) -> Canvas:
    """Return `height` rows of `width` cells with the lines, later ones on top."""
    if width < 1 or height < 1:
        return []
    _FIGURE.clear.data()
    _FIGURE.plot_size(width, height)
    # plotext maps its limits to the centres of the outer cells: this maps 0 and 1 to the edges
    _FIGURE.ruler("x").lim(0.5 / width, 1 - 0.5 / width)
    _FIGURE.ruler("y").lim(0.5 / height, 1 - 0.5 / height)
    drawn = False
    for number, line in enumerate(lines):
        xs, ys, begins = _unit_points(line, time_range, height)
        if xs:
            signal = _FIGURE.signal(xs, ys, marker=_MARKERS[number % len(_MARKERS)]).lines()
            for begin in begins:
                signal.line(begin, False)
            # draw() also asks every point for its colour, half of the time all this takes
            _FIGURE._signals._add(signal)  # noqa: SLF001  # instead of draw()
            drawn = True
    if not drawn:
        return [[_BLANK] * width for _ in range(height)]
    rows = [_cells(row, width) for row in _FIGURE.build().string().splitlines()[:height]]
    return rows + [[_BLANK] * width for _ in range(height - len(rows))]


def _unit_points(
    line: Line, time_range: TimeRange, height: int
) -> tuple[list[float], list[float], list[int]]:
    """Return x and y from 0 to 1, and the indices at which a new stretch begins.

    A point between two others in its row of dots is left out: the line looks the same, and
    plotext's cost is per point. Runs hold finite values only: one nan would end the process.
    """
    xs: list[float] = []
    ys: list[float] = []
    begins: list[int] = []
    levels = height * DOTS_PER_ROW
    begin_s, length_s = time_range.begin_s, time_range.length_s
    for run in line.runs:
        begins.append(begin := len(xs))
        for at_s, value in run:
            x = min(max((at_s - begin_s) / length_s, 0.0), 1.0)
            share = min(max(value / line.top, 0.0), 1.0)
            y = (min(int(share * levels), levels - 1) + 0.5) / levels
            if len(xs) - begin >= 2 and ys[-1] == ys[-2] == y:
                xs[-1] = x
            else:
                xs.append(x)
                ys.append(y)
    return xs, ys, begins


def _cells(row: str, width: int) -> list[Cell]:
    """Return the cells of one row of plotext's output, which colours by escape codes."""
    cells: list[Cell] = []
    colour: int | None = None
    for index, part in enumerate(_COLOUR.split(row)):
        if index % 2:
            colour = int(part[5:]) - 1 if part.startswith("38;5;") else None
        else:
            cells.extend(zip(part, repeat(colour), strict=False))
    return (cells + [_BLANK] * width)[:width]
