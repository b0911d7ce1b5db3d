"""What a chart shows of a series: the stretch of time, its bins, round limits and labels."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.tui import axes
from gpudash.tui.axes import RECENT_TICKS, TimeRange

TICK_S = 0.5


def ticks(first, count):
    """Ends of ticks, the first of them after `first` whole ones."""
    return [TICK_S * (first + tick + 1) for tick in range(count)]


def points(at_s, values, columns=40):
    time_range = axes.time_range_of(at_s, TICK_S, columns)
    return axes.cut(values, axes.bins_of(at_s, time_range), time_range)


# ── the limit of a value axis ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "above"),
    [(1.0, 1.0), (1.1, 1.2), (1.3, 1.5), (5.0, 5.0), (9.0, 10.0), (430.0, 500.0), (0.07, 0.08)],
)
def test_a_round_number_is_not_below_the_value(value, above):
    assert axes.nice_ceiling(value) == pytest.approx(above)


@pytest.mark.parametrize("value", [0.0, -3.0, math.nan, math.inf])
def test_nothing_has_an_axis_up_to_one(value):
    assert axes.nice_ceiling(value) == 1.0


@pytest.mark.parametrize("value", [5e-324, 1.3e308])
def test_where_no_round_number_is_left_the_value_stands_for_itself(value):
    assert axes.nice_ceiling(value) == value


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_an_axis_ends_above_its_values_and_not_far(value):
    top = axes.axis_top(value)
    assert value <= top <= 2.2 * value


def test_a_percentage_axis_ends_at_100_until_it_cannot():
    assert axes.axis_top(88, 100) == 100
    assert axes.axis_top(100, 100) == 100
    assert axes.axis_top(381, 100) == pytest.approx(500)
    assert axes.axis_top(0.3, 1.0) == 1.0
    assert axes.axis_top(0.0) == 1.0


# ── the stretch of time ─────────────────────────────────────────────────────────────────


@given(st.integers(0, 3000), st.integers(1, 3000), st.integers(1, 200))
def test_the_whole_series_is_shown_and_no_empty_bin_after_it(first, count, columns):
    at_s = ticks(first, count)
    shown = axes.time_range_of(at_s, TICK_S, columns)
    assert shown.length_s == pytest.approx(shown.bin_s * columns)
    assert shown.begin_s <= max(at_s[0] - TICK_S, 0) + shown.bin_s
    assert at_s[-1] <= shown.end_s
    assert shown.begin_s == 0 or shown.end_s - at_s[-1] < shown.bin_s


def test_a_series_one_tick_too_long_for_the_columns_gets_wider_bins():
    for first in (0, 1, 200):
        assert axes.time_range_of(ticks(first, 60), TICK_S, 60).bin_s == TICK_S
        assert axes.time_range_of(ticks(first, 61), TICK_S, 60).bin_s == 2 * TICK_S


@pytest.mark.parametrize(
    ("needed", "ticks_wide"),
    [(1, 1), (1.5, 2), (3.5, 4), (5.5, 6), (8.5, 10), (12.5, 15), (97, 97), (100, 121)],
)
def test_bins_are_whole_ticks_and_grow_by_about_a_quarter(needed, ticks_wide):
    at_s = [TICK_S, needed * TICK_S * 60]
    assert axes.time_range_of(at_s, TICK_S, 60).bin_s == ticks_wide * TICK_S


def test_ticks_of_a_quarter_second_make_bins_of_a_quarter_second():
    assert axes.time_range_of([], 0.25, 120).bin_s == 0.25


def test_without_ticks_the_chart_is_empty_and_half_a_minute_long():
    assert axes.time_range_of([], 0.0, 60) == TimeRange(begin_s=0.0, end_s=30.0, bin_s=0.5)


def test_a_chart_without_room_has_one_bin():
    shown = axes.time_range_of(ticks(0, 80), TICK_S, 0)
    assert shown.length_s == shown.bin_s >= 40.0


def test_a_chart_never_shows_a_time_before_the_run():
    for first_s in (0.5, 13.0, 29.5):
        time_range = axes.time_range_of([first_s, first_s + 0.5], 0.5, 40)
        assert time_range.begin_s == 0
        assert time_range.end_s >= 30


# ── bins ────────────────────────────────────────────────────────────────────────────────


def test_every_tick_falls_into_exactly_one_bin():
    for count in (1, 59, 60, 61, 600):
        at_s = ticks(0, count)
        time_range = axes.time_range_of(at_s, TICK_S, 37)
        covered = [i for _, part in axes.bins_of(at_s, time_range) for i in range(count)[part]]
        inside = [i for i, at in enumerate(at_s) if time_range.begin_s < at <= time_range.end_s]
        assert covered == inside
        assert covered[-1] == count - 1


def test_a_tick_that_misses_a_border_by_rounding_belongs_to_the_bin_that_ends_there():
    rounding_s = 1e-9
    at_s = [10 + rounding_s, 10.5, 12 + rounding_s, 20 + rounding_s, 20.5]
    bins = axes.bins_of(at_s, TimeRange(begin_s=10.0, end_s=20.0, bin_s=1.0))
    assert bins == [(10, slice(1, 2)), (11, slice(2, 3)), (19, slice(3, 4))]


def test_a_point_stands_in_the_middle_of_its_bin():
    time_range = TimeRange(begin_s=10.0, end_s=20.0, bin_s=2.0)
    bins = [(5, slice(0, 2)), (6, slice(2, 3))]
    assert axes.cut([1.0, 3.0, 7.0], bins, time_range) == [[(11.0, 2.0), (13.0, 7.0)]]


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_bin_is_the_mean_of_what_was_measured_in_it(value):
    time_range = TimeRange(begin_s=0.0, end_s=2.0, bin_s=1.0)
    assert axes.cut([value, 3.0], [(0, slice(0, 2))], time_range) == [[(0.5, 3.0)]]
    assert axes.cut([value], [(0, slice(0, 1))], time_range) == []


def test_a_sum_beyond_a_float_is_no_point():
    time_range = TimeRange(begin_s=0.0, end_s=1.0, bin_s=1.0)
    assert axes.cut([1e308, 1e308], [(0, slice(0, 2))], time_range) == []


def test_a_series_is_cut_to_the_charts_width():
    assert sum(map(len, points(ticks(0, 600), [1.0] * 600))) <= 40


def test_a_gap_breaks_the_line_and_is_never_a_zero():
    values = [5.0 if not 20 <= tick < 40 else None for tick in range(60)]
    runs = points(ticks(0, 60), values)
    assert len(runs) == 2
    assert {y for run in runs for _, y in run} == {5.0}


def test_a_drawn_bin_does_not_change_when_time_goes_on():
    values = [math.sin(tick) for tick in range(700)]
    at_s = ticks(0, 700)
    before = dict(p for run in points(at_s[:600], values[:600]) for p in run)
    after = dict(p for run in points(at_s[3:603], values[3:603]) for p in run)
    common = sorted(before.keys() & after.keys())[1:-1]  # the range may cut the outer ones
    assert len(common) > 20
    assert [before[at] for at in common] == [after[at] for at in common]


# ── what a chart is scaled by, and the newest value ─────────────────────────────────────


def line(*values):
    return [[(float(at), value) for at, value in enumerate(values)]]


def test_the_highest_of_no_point_is_zero():
    assert axes.highest([]) == 0.0
    assert axes.highest([*line(1.0, 3.0), *line(2.0)]) == 3.0


def test_a_slow_first_step_does_not_set_the_scale_but_a_lasting_change_does():
    usual = [(float(at), 5.0) for at in range(30)]
    assert axes.usual_highest([[(0.0, 200.0), *usual]]) == 7.5
    assert axes.usual_highest([usual[:20], [(float(at), 50.0) for at in range(20, 30)]]) == 50.0
    assert axes.usual_highest([]) == 0.0


def test_of_ten_points_one_may_be_rare():
    assert axes.usual_highest(line(200.0, *[1.0] * 7, 5.0)) == 200.0  # nine
    assert axes.usual_highest(line(200.0, *[1.0] * 8, 5.0)) == 7.5


def test_three_times_the_usual_is_not_far_above_it():
    assert axes.usual_highest(line(*[5.0] * 9, 15.0)) == 15.0
    assert axes.usual_highest(line(*[5.0] * 9, 17.5)) == 7.5


def test_the_newest_value_is_the_last_that_was_measured_lately():
    assert axes.latest([1.0, 2.0, None, math.nan, math.inf]) == 2.0
    assert axes.latest([1.0, *[None] * (RECENT_TICKS - 1)]) == 1.0
    assert axes.latest([1.0, *[None] * RECENT_TICKS]) is None
    assert axes.latest([]) is None


# ── labels of the time axis ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("begin_s", "end_s", "columns", "moments"),
    [
        (0, 60, 24, [0, 20, 40, 60]),  # three labels of eight columns, and the first one
        (0, 50, 23, [0, 30]),  # there is no part of a label
        (0, 60, 1, [0, 60]),
        (20, 80, 24, [20, 40, 60, 80]),
        (19, 79, 24, [20, 40, 60]),
        (0, 100_000, 40, [0, 28_800, 57_600, 86_400]),  # whole times four hours
    ],
)
def test_labels_stand_at_round_moments(begin_s, end_s, columns, moments):
    time_range = TimeRange(begin_s=begin_s, end_s=end_s, bin_s=1)
    assert axes.time_ticks(time_range, columns) == moments


@pytest.mark.parametrize("length", [30, 100, 300, 5000, 200_000])
@pytest.mark.parametrize("columns", [1, 9, 40, 180])
def test_time_labels_have_room(length, columns):
    time_range = TimeRange(begin_s=17.0, end_s=17.0 + length, bin_s=1)
    moments = axes.time_ticks(time_range, columns)
    assert all(time_range.begin_s <= at <= time_range.end_s for at in moments)
    assert len(moments) <= columns // 8 + 2
