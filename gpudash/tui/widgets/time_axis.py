"""The time axis of a profile: rows of cells, moments and durations, and the borders of steps."""

import math
from collections.abc import Iterator, Sequence

from gpudash import format as fmt
from gpudash.present.cells import CellRow, Parts
from gpudash.present.trace_view import Span
from gpudash.trace.model import TraceStep

APART = 3
"""Columns between two labels of the ruler."""


def duration(us: float) -> str:
    if us <= 0:
        return "0 µs"
    if us < 1e3:
        return f"{fmt.significant(us)} µs"
    return f"{fmt.significant(us / 1e3)} ms" if us < 1e6 else f"{fmt.significant(us / 1e6)} s"


def ruler(span: Span, columns: int, cursor_us: float) -> Parts:
    line, cell_us = CellRow(columns), span.length_us / columns
    line.put(int((cursor_us - span.begin_us) // cell_us), "▾", "strong")
    for at_us, text in _ticks(span, columns):
        column = int((at_us - span.begin_us) / cell_us + 1e-6)
        if line.is_free(max(column - 1, 0), column + len(text)):
            line.put(column, text, "dim")
    return line.parts


def _ticks(span: Span, columns: int) -> Iterator[tuple[float, str]]:
    power = math.floor(math.log10(span.length_us / columns))
    rounds = [nice * 10.0**one for one in range(power, power + 4) for nice in (1, 2, 5)]
    for step_us in rounds:
        last = math.floor(span.end_us / step_us + 1e-9)
        width = len(_moment(last * step_us, step_us))
        if step_us * columns >= (width + APART) * span.length_us:
            break
    for number in range(math.ceil(span.begin_us / step_us - 1e-9), last + 1):
        yield number * step_us, _moment(number * step_us, step_us)


def _moment(at_us: float, step_us: float) -> str:
    """Return a moment with enough digits to differ from the next one."""
    scale, unit = (1e3, "ms") if step_us >= 10 else (1.0, "µs")
    decimals = max(-math.floor(math.log10(step_us / scale) + 1e-9), 0)
    return f"{at_us / scale:,.{decimals}f} {unit}"


def borders(steps: Sequence[TraceStep], span: Span, columns: int) -> Parts:
    line = CellRow(columns, "─", "border")
    cell_us = span.length_us / columns
    for step in steps:
        if step.end_us <= span.begin_us or step.begin_us >= span.end_us:
            continue
        border = math.floor((step.begin_us - span.begin_us) / cell_us)
        room = min(math.floor((step.end_us - span.begin_us) / cell_us), columns)
        begin = max(border + 1, 0)
        line.put(border, "┊", "dim")
        took = duration(step.end_us - step.begin_us)
        for text in (f" {step.number:,} · {took} ", f" {step.number:,} "):
            if begin + len(text) <= room:
                line.put(begin, text, "dim")
                break
    return line.parts
