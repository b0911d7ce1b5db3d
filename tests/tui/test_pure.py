"""The pure parts: the canvas, the inbox, bars and columns."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpudash.snapshot import Series
from gpudash.tui.cells import Cell, fitting
from gpudash.tui.charts import axes, curve
from gpudash.tui.charts.axes import TimeView
from gpudash.tui.inbox import Inbox
from gpudash.tui.widgets.timeline import details_rows
from gpudash.views.timeline import Details
from tests.tui.fake_engine import training

ANY = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(ANY, max_size=80), st.integers(0, 60), st.integers(0, 12))
def test_values_that_crash_plotext_never_reach_it(values, width, height):
    at_s = tuple(0.5 * (tick + 1) for tick in range(len(values)))
    time_range = axes.range_of(Series(at_s=at_s), width, TimeView())
    runs = axes.cut(values, axes.bins_of(at_s, time_range), time_range)
    assert all(math.isfinite(y) for run in runs for _, y in run)
    top = axes.axis_top(axes.highest(runs))
    canvas = curve.curve(runs, top, time_range, width, height)
    assert len(canvas) == (height if width else 0)
    assert all(len(row) == width for row in canvas)


@pytest.mark.parametrize(("width", "height"), [(0, 0), (1, 1), (2, 1), (1, 5), (20, 4), (83, 11)])
def test_a_canvas_has_exactly_the_size_asked_for(width, height):
    time_range = axes.TimeRange(begin_s=0, end_s=30, columns=30)
    canvas = curve.curve([[(0.5, 1.0), (29.5, 9.0)]], 10, time_range, width, height)
    assert [len(row) for row in canvas] == [width] * (height if width else 0)


def test_a_curve_rises_from_the_lower_left():
    time_range = axes.TimeRange(begin_s=0, end_s=10, columns=10)
    canvas = curve.curve([[(0.0, 0.0), (10.0, 10.0)]], 10, time_range, 20, 5)
    assert [canvas[4][0] == " ", canvas[0][19] == " "] == [False, False]
    assert [canvas[0][0], canvas[4][19]] == [" ", " "]


def test_a_curve_has_a_gap_where_nothing_was_measured():
    time_range = axes.TimeRange(begin_s=0, end_s=10, columns=10)
    (row,) = curve.curve(
        [[(0.0, 5.0), (3.0, 5.0)], [(7.0, 5.0), (10.0, 5.0)]], 10, time_range, 20, 1
    )
    assert row[10] == " "
    assert " " not in row[:6] + row[14:]


def test_leaving_out_points_of_a_flat_curve_does_not_change_it():
    time_range = axes.TimeRange(begin_s=0, end_s=40, columns=40)
    every = [[(at + 0.5, 5.0) for at in range(40)]]
    ends = [[(0.5, 5.0), (39.5, 5.0)]]
    assert curve.curve(every, 10, time_range, 40, 6) == curve.curve(ends, 10, time_range, 40, 6)


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
    for row in details_rows(None, found, width, 5):
        assert cell_len("".join(text for text, _ in row)) <= width
