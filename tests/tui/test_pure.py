"""The pure parts: formats, series, the canvas, the inbox."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash import format as fmt
from gpudash.tui import axes, plot
from gpudash.tui.bars import Cell, fitting
from gpudash.tui.inbox import Inbox
from gpudash.tui.widgets.results import columns_for
from tests.tui.fake_engine import training

ANY = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "–"), (math.inf, "–"), (0.0, "0.00"), (0.0433, "0.043"),
     (4.314, "4.31"), (43.14, "43.1"), (431.4, "431"), (4314.4, "4,314"), (9.999, "10.0"),
     (99.96, "100")],
)  # fmt: skip
def test_significant(value, text):
    assert fmt.significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (2.5, "2.5"), (750, "750"), (1500, "1.5k"), (2e7, "20M"), (1e15, "1e+03T")],
)
def test_compact(value, text):
    assert fmt.compact(value) == text


def test_units():
    assert fmt.memory(812) == "812 MiB"
    assert fmt.memory(11_674) == "11.4 GiB"
    assert fmt.memory(None) == "–"
    assert fmt.percent(97.4) == "97 %"
    assert fmt.ratio(1.0649) == "1.06×"
    assert fmt.clock(8135.9) == "2:15:35"
    assert fmt.clock(math.nan) == "0:00:00"
    assert fmt.with_unit(None, "W") == "–"


@given(st.text())
def test_plain_text_holds_nothing_a_terminal_obeys(text):
    assert fmt.plain(text).isprintable()


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_an_axis_ends_above_its_values_and_not_far(value):
    top = axes.axis_top(value)
    assert value <= top <= 2.2 * value


def test_a_percentage_axis_ends_at_100_until_it_cannot():
    assert axes.axis_top(88, 100) == 100
    assert axes.axis_top(100, 100) == 100
    assert axes.axis_top(381, 100) == pytest.approx(500)


def points(at_s, values, columns=40, tick_s=0.5):
    time_range = axes.time_range_of(at_s, tick_s, columns)
    return axes.cut(values, axes.bins_of(at_s, time_range), time_range)


def test_every_tick_falls_into_exactly_one_bin():
    for ticks in (1, 59, 60, 61, 600):
        at_s = [0.5 * (tick + 1) for tick in range(ticks)]
        time_range = axes.time_range_of(at_s, 0.5, 37)
        covered = [i for _, part in axes.bins_of(at_s, time_range) for i in range(ticks)[part]]
        inside = [i for i, at in enumerate(at_s) if time_range.begin_s < at <= time_range.end_s]
        assert covered == inside
        assert covered[-1] == ticks - 1


def test_a_series_is_cut_to_the_charts_width():
    at_s = [0.5 * (tick + 1) for tick in range(600)]
    assert sum(map(len, points(at_s, [1.0] * 600))) <= 40


def test_a_gap_breaks_the_line_and_is_never_a_zero():
    at_s = [0.5 * (tick + 1) for tick in range(60)]
    values = [5.0 if not 20 <= tick < 40 else None for tick in range(60)]
    runs = points(at_s, values)
    assert len(runs) == 2
    assert {y for run in runs for _, y in run} == {5.0}


def test_a_drawn_bin_does_not_change_when_time_goes_on():
    values = [math.sin(tick) for tick in range(700)]
    at_s = [0.5 * (tick + 1) for tick in range(700)]
    before = dict(p for run in points(at_s[:600], values[:600]) for p in run)
    after = dict(p for run in points(at_s[3:603], values[3:603]) for p in run)
    common = sorted(before.keys() & after.keys())[
        1:-1
    ]  # the outer ones may be cut by the time_range
    assert len(common) > 20
    assert [before[at] for at in common] == [after[at] for at in common]


@given(st.lists(ANY, max_size=80), st.integers(0, 60), st.integers(0, 12))
def test_nothing_that_plotext_dies_of_reaches_it(values, width, height):
    at_s = [0.5 * (tick + 1) for tick in range(len(values))]
    time_range = axes.time_range_of(at_s, 0.5, width)
    runs = axes.cut(values, axes.bins_of(at_s, time_range), time_range)
    assert all(math.isfinite(y) for run in runs for _, y in run)
    top = axes.axis_top(axes.highest(runs))
    canvas = plot.draw([plot.Line(runs=runs, top=top)], time_range, width, height)
    assert len(canvas) == (height if width else 0)
    assert all(len(row) == width for row in canvas)
    assert not any(cell == " " for row in canvas for cell, line in row if line is not None)


@pytest.mark.parametrize(("width", "height"), [(0, 0), (1, 1), (2, 1), (1, 5), (20, 4), (83, 11)])
def test_a_canvas_has_exactly_the_size_asked_for(width, height):
    time_range = axes.TimeRange(begin_s=0, end_s=30, bin_s=1)
    line = plot.Line(runs=[[(0.5, 1.0), (29.5, 9.0)]], top=10)
    canvas = plot.draw([line, line], time_range, width, height)
    assert [len(row) for row in canvas] == [width] * (height if width else 0)


def test_lines_rise_from_the_lower_left_and_keep_their_colours():
    time_range = axes.TimeRange(begin_s=0, end_s=10, bin_s=1)
    rising = plot.Line(runs=[[(0.0, 0.0), (10.0, 10.0)]], top=10)
    flat = plot.Line(runs=[[(0.0, 10.0), (4.0, 10.0)]], top=10)
    canvas = plot.draw([rising, flat], time_range, 20, 5)
    assert canvas[4][0][1] == 0
    assert canvas[0][0][1] == 1
    assert canvas[0][19][1] == 0
    assert canvas[4][19][1] is None


def test_leaving_out_points_of_a_flat_line_does_not_change_it():
    time_range = axes.TimeRange(begin_s=0, end_s=40, bin_s=1)
    every = plot.Line(runs=[[(at + 0.5, 5.0) for at in range(40)]], top=10)
    ends = plot.Line(runs=[[(0.5, 5.0), (39.5, 5.0)]], top=10)
    assert plot.draw([every], time_range, 40, 6) == plot.draw([ends], time_range, 40, 6)


@pytest.mark.parametrize("length", [30, 100, 300, 5000, 200_000])
@pytest.mark.parametrize("columns", [1, 9, 40, 180])
def test_time_labels_have_room(length, columns):
    time_range = axes.TimeRange(begin_s=17.0, end_s=17.0 + length, bin_s=1)
    ticks = axes.time_ticks(time_range, columns)
    assert all(time_range.begin_s <= at <= time_range.end_s for at in ticks)
    assert len(ticks) <= columns // 8 + 2


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


def test_a_bar_drops_what_matters_least():
    cells = tuple(
        Cell(parts=((name * 5, "text"),), rank=rank)
        for name, rank in zip("abc", (0, 2, 1), strict=True)
    )
    assert [c.rank for c in fitting(cells, 19)] == [0, 2, 1]
    assert [c.rank for c in fitting(cells, 18)] == [0, 1]
    assert fitting(cells, 3) == []


@pytest.mark.parametrize("width", [30, 56, 60, 80, 200])
def test_the_ratio_and_the_rate_stay_in_the_table(width):
    titles = [column.title for column in columns_for(width)]
    assert "ratio" in titles
    assert "steps/s" in titles
    assert (len(titles) == 8) == (width >= 90)


def test_a_chart_never_shows_a_time_before_the_run():
    for first_s in (0.5, 13.0, 29.5):
        time_range = axes.time_range_of([first_s, first_s + 0.5], 0.5, 40)
        assert time_range.begin_s == 0
        assert time_range.end_s >= 30


def test_a_slow_first_step_does_not_set_the_scale_but_a_lasting_change_does():
    usual = [(float(at), 5.0) for at in range(30)]
    assert axes.usual_highest([[(0.0, 200.0), *usual]]) == 7.5
    assert axes.usual_highest([usual[:20], [(float(at), 50.0) for at in range(20, 30)]]) == 50.0
    assert axes.usual_highest([]) == 0.0
