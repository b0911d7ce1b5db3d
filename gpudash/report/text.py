"""A recording as text for a terminal: what ran, its curve, its settings."""

from collections.abc import Iterator

from gpudash.present.axes import TimeView, axis_top, bins_of, cut, highest, range_of
from gpudash.present.cells import Parts
from gpudash.present.curves import curves, line_of
from gpudash.present.history import history_rows, table_of
from gpudash.present.receipt import receipt
from gpudash.present.throughput import throughput
from gpudash.snapshot import Snapshot

ROWS, GUTTER = 12, 6
"""Rows of the curve, and the columns of its value axis."""


def text(snapshot: Snapshot, columns: int) -> str:
    table = table_of(snapshot, on_gpu=False)
    rows = [
        *_curve(snapshot, columns),
        (),
        *history_rows(table, range(len(table.results)), columns),
    ]
    lines = ("".join(part for part, _ in row).rstrip() for row in rows)
    return "\n".join((*receipt(snapshot), "", *lines))


def _curve(snapshot: Snapshot, columns: int) -> Iterator[Parts]:
    rate, series = throughput(snapshot), snapshot.series
    time_range = range_of(series, max(columns - GUTTER, 1), TimeView(span_s=None))
    runs = cut(rate.values, bins_of(series.at_s, time_range), time_range, series.at_s)
    if not runs:
        return
    yield ((f" {rate.unit}", ""),)
    lines = (line_of("rate", runs),)
    yield from curves(lines, axis_top(highest(runs)), time_range, ROWS, GUTTER)
