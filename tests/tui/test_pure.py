"""The pure parts: drawn columns, the inbox, bars and columns."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpudash.present import axes
from gpudash.present.axes import TimeView
from gpudash.present.cells import Cell, fitting
from gpudash.present.columns import column_rows
from gpudash.present.throughput import drawn_columns
from gpudash.snapshot import Series
from gpudash.tui.inbox import Inbox
from gpudash.tui.widgets.timeline import details_rows
from gpudash.views.timeline import Details
from tests.tui.fake_engine import training

ANY = st.none() | st.floats(allow_nan=True, allow_infinity=True)


def rows_of(runs, time_range, rows, top=None):
    top = top or axes.axis_top(axes.highest(runs))
    columns = drawn_columns(runs, ["rate"] * time_range.columns, top, time_range, rows)
    drawn = column_rows(columns, top, time_range, rows, 0)
    return ["".join(text for text, _ in row) for row in drawn]


@given(st.lists(ANY, max_size=80), st.integers(1, 60), st.integers(0, 12))
def test_any_values_are_drawn_as_rows_of_one_width(values, width, height):
    at_s = tuple(0.5 * (tick + 1) for tick in range(len(values)))
    time_range = axes.range_of(Series(at_s=at_s), width, TimeView())
    runs = axes.cut(values, axes.bins_of(at_s, time_range), time_range)
    assert all(math.isfinite(y) for run in runs for _, y in run)
    assert set(map(len, rows_of(runs, time_range, height))) <= {width}


def test_the_inbox_keeps_the_newest_and_knocks_once():
    knocks = []
    inbox = Inbox(knock=lambda: knocks.append(1))
    newest = training(3)
    inbox.on_snapshot(training(1))
    inbox.on_log(["a"])
    inbox.on_snapshot(newest)
    inbox.on_log([f"line {n}" for n in range(3000)])
    assert knocks == [1]
    mail = inbox.take()
    assert mail.snapshot is newest
    assert len(mail.lines) == 2000
    assert mail.lines[-1] == "line 2999"
    assert inbox.take().snapshot is None
    inbox.on_log(["b"])
    assert knocks == [1, 1]


def test_a_bar_leaves_out_the_least_important_cells():
    cells = tuple(
        Cell(parts=((name * 5, "text"),), rank=rank)
        for name, rank in zip("abc", (0, 2, 1), strict=True)
    )
    assert [c.rank for c in fitting(cells, 19)] == [0, 2, 1]
    assert [c.rank for c in fitting(cells, 18)] == [0, 1]
    assert fitting(cells, 3) == []


@pytest.mark.parametrize("width", range(20, 90, 7))
def test_what_is_known_of_an_event_fits_where_a_lanes_name_has_wide_characters(width):
    found = Details(
        name="gemm", kind="kernel", lane="転送" * 6, begin_us=1e3, duration_us=12.0, delay_us=3.0
    )
    for row in details_rows(None, found, width):
        assert cell_len("".join(text for text, _ in row)) <= width
