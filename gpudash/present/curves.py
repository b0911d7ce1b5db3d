"""Lines drawn by plotext, for charts of eight rows or more: in fewer, eighth blocks say more."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from gpudash import format as fmt
from gpudash.present.axes import Runs, TimeRange, time_ticks
from gpudash.present.cells import Parts

LEAST_ROWS = 8
"""Fewest rows of a chart, with its axis, that is drawn as lines."""
AXIS_ROWS = 2
"""Rows of the time axis, which are among them: a line, and the moments."""
ROWS_A_TICK = 4
"""Rows between two numbers of the value axis."""
FIRST = 16
"""The first of the colours, of plotext's 256, by which inks are known again."""
COLOURED = re.compile(r"\x1b\[([\d;]*)m")


class Line(NamedTuple):
    """Points that belong together."""

    ink: str
    runs: tuple[tuple[tuple[float, float], ...], ...]
    """Finite (moment in s, value), split where nothing was measured."""


def line_of(ink: str, runs: Runs) -> Line:
    return Line(ink, tuple(tuple(run) for run in runs))


@lru_cache(maxsize=8)
def curves(
    lines: tuple[Line, ...],
    top: float,
    time_range: TimeRange,
    rows: int,
    gutter: int,
    marks: tuple[tuple[float, str], ...] = (),
) -> tuple[Parts, ...]:
    """Keep results, as a screen asks more often than ticks come; a mark is a moment and its ink."""
    import plotext  # noqa: PLC0415  # takes a twelfth of a second: not before the first paint

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.limit_size(False, False)  # plotext's signature
    plotext.plotsize(time_range.columns + gutter, rows)
    plotext.xaxes(lower=True, upper=False)
    plotext.yaxes(left=bool(gutter), right=False)
    # plotext puts its limits into the middle of the outer columns
    plotext.xlim(time_range.middle_of(0), time_range.middle_of(max(time_range.columns - 1, 1)))
    plotext.ylim(0, 1)  # shares of the top: what is huge would overflow there
    moments = [at_s for at_s in time_ticks(time_range) if time_range.holds(at_s)]
    plotext.xticks(moments, [fmt.minutes(at_s) for at_s in moments])
    ticks = max((rows - AXIS_ROWS) // ROWS_A_TICK, 2)
    shares = [number / ticks for number in range(ticks + 1)] if gutter else []
    plotext.yticks(shares, [f"{fmt.compact(top * one):>{gutter - 1}}" for one in shares])
    inks = [*dict.fromkeys([*(ink for _, ink in marks), *(one.ink for one in lines)])]
    for at_s, ink in marks:
        plotext.vline(at_s, color=FIRST + inks.index(ink))
    for one in lines:
        for run in one.runs:
            heights = [min(max(y / top, 0.0), 1.0) for _, y in run]
            plotext.plot(
                [at_s for at_s, _ in run],
                heights,
                marker="braille",
                color=FIRST + inks.index(one.ink),
            )
    by_code = {str(number): ink for number, ink in enumerate(inks, FIRST)}
    first, *others = plotext.build().splitlines()[:rows]
    if any(y > top for one in lines for run in one.runs for _, y in run):
        first = first.replace("┤", "↑", 1)  # as columns have it
    return tuple(_parts(row, by_code) for row in (first, *others))


def _parts(row: str, inks: Mapping[str, str]) -> Parts:
    text, *coloured = COLOURED.split(row)
    parts = [(text, "faint")]
    for code, more in zip(coloured[::2], coloured[1::2], strict=True):
        parts.append((more, inks.get(code.rpartition(";")[2], "faint")))
    return tuple((text, ink) for text, ink in parts if text)


def in_stretches(runs: Runs, ink_at: Sequence[str], time_range: TimeRange) -> tuple[Line, ...]:
    """Let a stretch fill its outer columns: a line that joins two settings would be of neither."""
    found: dict[str, list[tuple[tuple[float, float], ...]]] = {}
    beside_s = time_range.bin_s / 4
    for run in runs:
        for ink, points in groupby(run, lambda point: ink_at[time_range.column_of(point[0])]):
            stretch = [*points]
            (first_s, first), (last_s, last) = stretch[0], stretch[-1]
            ends = (first_s - beside_s, first), (last_s + beside_s, last)
            found.setdefault(ink, []).append((ends[0], *stretch, ends[1]))
    return tuple(Line(ink, tuple(stretches)) for ink, stretches in found.items())
