"""What a chart shows of a series: zoom, freeze and cursor; its bins, round limits and labels."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gpudash.present import axes
from gpudash.present.axes import RECENT_TICKS, SHORTEST_S, SPANS_S, TimeRange, TimeView
from gpudash.snapshot import Series

TICK_S = 0.5
WHOLE = TimeView(span_s=None)


def ticks(first, count):
    """Ends of ticks, the first of them after `first` whole ones."""
    return [TICK_S * (first + tick + 1) for tick in range(count)]


def shown(at_s, columns=60, view=WHOLE, tick_s=TICK_S, first=0):
    """The range of a chart whose steps begin in the tick `first`."""
    steps_ms = (None,) * first + (10.0,) * (len(at_s) - first)
    series = Series(at_s=tuple(at_s), tick_s=tick_s, values={"step_ms": steps_ms})
    return axes.range_of(series, columns, view)


def points(at_s, values, columns=40, view=WHOLE):
    time_range = shown(at_s, columns, view)
    return axes.cut(values, axes.bins_of(at_s, time_range), time_range)


# ── the limit of a value axis ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "above"),
    [
        *[(1.0, 1.0), (1.1, 1.2), (1.3, 1.5), (5.0, 5.0), (9.0, 10.0), (430.0, 500.0)],
        *[(0.07, 0.08), (9.1e306, 1e307)],
        *[(nothing, 1.0) for nothing in (0.0, -3.0, math.nan, math.inf)],
        *[(no_round_one, no_round_one) for no_round_one in (5e-324, 1.3e308)],
    ],
)
def test_a_round_number_is_not_below_the_value(value, above):
    assert axes.nice_ceiling(value) == pytest.approx(above, abs=0)


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_an_axis_ends_above_its_values_and_not_far(value):
    assert value <= axes.axis_top(value) <= 2.2 * value


# ── the stretch of time ─────────────────────────────────────────────────────────────────


views = st.builds(
    TimeView,
    span_s=st.none() | st.sampled_from(SPANS_S),
    end_s=st.none() | st.floats(0, 3000),
)
widths = st.integers(1, 400)


@given(st.integers(1, 6000), views, st.lists(widths, min_size=2, max_size=5))
def test_charts_of_every_width_show_the_same_ticks_between_the_same_borders(count, view, columns):
    at_s = ticks(0, count)
    charts = [shown(at_s, width, view) for width in columns]
    assert len({(one.begin_s, one.end_s) for one in charts}) == 1
    assert [one.columns for one in charts] == columns
    every = range(count)
    bins = [axes.bins_of(at_s, one) for one in charts]
    assert len({frozenset(i for _, part in parts for i in every[part]) for parts in bins}) == 1


@given(st.integers(1, 6000), views, widths, st.floats(0, 1))
def test_a_moment_stands_as_far_from_the_borders_in_charts_of_every_width(
    count, view, columns, share
):
    time_range = shown(ticks(0, count), columns, view)
    at_s = time_range.begin_s + share * time_range.length_s
    assert abs(time_range.column_of(at_s) + 0.5 - share * columns) <= 1.5


@given(st.integers(1, 6000), widths)
def test_the_whole_run_is_shown_and_no_empty_time_after_it(count, columns):
    at_s = ticks(0, count)
    whole = shown(at_s, columns)
    assert whole.begin_s <= 1e-6
    assert whole.end_s == at_s[-1]
    assert whole.length_s <= 1.15 * max(at_s[-1], SHORTEST_S) + 1e-6


@given(st.integers(1, 6000), views)
def test_the_time_that_the_view_says_is_shown_and_ends_where_it_says(count, view):
    at_s = ticks(0, count)
    time_range = shown(at_s, 60, view)
    last_s = at_s[-1] if view.end_s is None else min(view.end_s, at_s[-1])
    assert -1e-6 <= time_range.end_s - last_s < TICK_S + 1e-6
    most_s = time_range.length_s if view.span_s is None else view.span_s
    assert min(most_s, max(last_s, SHORTEST_S)) - 1e-6 <= time_range.length_s <= most_s + 1e-6


def test_the_last_two_minutes_are_shown_at_first():
    time_range = shown(ticks(0, 4000), 60, TimeView())
    assert (time_range.begin_s, time_range.end_s) == (2000 - 120, 2000)


@pytest.mark.parametrize("starts_s", [0, 10, 40, 300])
@pytest.mark.parametrize("trained_s", [1, 15, 30, 60, 119])
def test_a_chart_is_full_soon_after_the_first_step_however_long_the_start_took(starts_s, trained_s):
    time_range = shown(ticks(0, 2 * (starts_s + trained_s)), 60, TimeView(), first=2 * starts_s)
    assert time_range.length_s <= max(1.15 * trained_s, SHORTEST_S)


@pytest.mark.parametrize(
    ("view", "begin_s"),
    [
        (TimeView().whole(), 0.0),  # the whole run has its start
        (TimeView(span_s=60.0), 40.0),
        (TimeView().at(8.0, 100.0), 8.0),  # the cursor is in the start
        (TimeView(end_s=20.0), 20.0 - SHORTEST_S * 1.15**3),  # no step was finished by then
    ],
)
def test_the_start_is_shown_where_it_is_asked_for(view, begin_s):
    assert shown(ticks(0, 200), 60, view, first=160).begin_s <= begin_s


def test_while_a_young_run_grows_its_charts_mostly_scroll():
    lengths = {shown(ticks(0, count), 60, TimeView()).length_s for count in range(1, 400)}
    assert len(lengths) == 16


@pytest.mark.parametrize("columns", [37, 60, 400])
def test_columns_lie_on_multiples_of_their_width(columns):
    for count in range(900, 920):
        time_range = shown(ticks(0, count), columns, TimeView())
        moment_s = (time_range.first + 3) * time_range.bin_s
        assert time_range.column_of(moment_s) == 3
        assert time_range.column_of(moment_s - 1e-3) == 2
        assert time_range.middle_of(3) == pytest.approx(moment_s + time_range.bin_s / 2)


def test_a_frozen_chart_shows_nothing_that_comes_later():
    view = TimeView(end_s=20.0)
    before = points(ticks(0, 40), [1.0] * 40, view=view)
    assert points(ticks(0, 70), [1.0] * 70, view=view) == before
    assert points(ticks(0, 70), [1.0] * 70) != before


def test_a_tick_fills_all_its_columns():
    runs = points(ticks(0, 40), [float(tick) for tick in range(40)], 60, TimeView(span_s=15.0))
    assert [at_s for at_s, _ in runs[0]] == pytest.approx([5.125 + 0.25 * n for n in range(60)])
    assert [value for _, value in runs[0][:4]] == [10.0, 10.0, 11.0, 11.0]


def test_without_ticks_the_chart_is_empty_and_a_quarter_of_a_minute_long():
    assert shown([]) == TimeRange(begin_s=-15.0, end_s=0.0, columns=60)


def test_a_chart_without_room_has_one_column():
    assert shown(ticks(0, 80), 0).columns == 1


def test_a_chart_holds_its_range_with_both_borders_and_knows_the_middle_of_each_column():
    time_range = TimeRange(begin_s=10.0, end_s=20.0, columns=5)
    assert [time_range.holds(at_s) for at_s in (9.9, 10.0, 20.0, 20.1)] == [
        False,
        True,
        True,
        False,
    ]
    assert [time_range.moment_in(column) for column in (-1, 0, 4, 5)] == [None, 11.0, 19.0, None]
    assert [time_range.column_of(at_s) for at_s in (0.0, 11.9, 12.0, 19.0, 30.0)] == [0, 0, 1, 4, 4]


# ── bins ────────────────────────────────────────────────────────────────────────────────


def test_a_tick_that_misses_a_border_by_rounding_belongs_to_the_bin_that_ends_there():
    rounding_s = 1e-9
    at_s = [10 + rounding_s, 10.5, 11 + rounding_s, 12 + rounding_s, 12.5]
    bins = axes.bins_of(at_s, TimeRange(begin_s=10.0, end_s=12.0, columns=2))
    assert bins == [(0, slice(1, 3)), (1, slice(3, 4))]


def test_a_long_tick_fills_its_bins_and_before_and_after_the_ticks_there_is_none():
    bins = axes.bins_of([6.0, 8.0], TimeRange(begin_s=0.0, end_s=10.0, columns=10))
    first, second = slice(0, 1), slice(1, 2)
    assert bins == [(4, first), (5, first), (6, second), (7, second)]


def test_ticks_of_unequal_length_weigh_by_it():
    at_s, time_range = [8.0, 16.0, 18.0], TimeRange(begin_s=0.0, end_s=20.0, columns=1)
    bins = axes.bins_of(at_s, time_range)
    assert axes.cut([1.0, 1.0, 10.0], bins, time_range, at_s) == [[(10.0, pytest.approx(2.0))]]
    assert axes.cut([1.0, None, 10.0], bins, time_range, at_s) == [[(10.0, pytest.approx(2.8))]]


@pytest.mark.parametrize(
    ("values", "mean"),
    [((1.0, 2.0, 4.0), 18 / 9), ((1.0, None, 4.0), 12 / 6), ((None, 2.0, 4.0), 14 / 5)],
)
def test_ticks_that_become_shorter_within_a_bin_weigh_by_their_length(values, mean):
    """They take 4, 3 and 2 s, after one of 4 s."""
    at_s, time_range = [4.0, 8.0, 11.0, 13.0], TimeRange(begin_s=0.0, end_s=20.0, columns=1)
    ((point,),) = axes.cut([9.0, *values], [(0, slice(1, 4))], time_range, at_s)
    assert point == (10.0, pytest.approx(mean))
    assert axes.means([9.0, *values], at_s, [slice(1, 4)]) == [pytest.approx(mean)]
    later = [9.0, 9.0, *values, 4.0]
    at_s = [0.0, *at_s, 15.0]
    rest = sum(length for length, one in zip((4, 3, 2), values, strict=True) if one is not None)
    ((point,),) = axes.cut(later, [(0, slice(2, 6))], time_range, at_s)
    assert point == (10.0, pytest.approx((mean * rest + 4.0 * 2) / (rest + 2)))


@pytest.mark.parametrize(
    ("values", "means"),
    [
        ([1.0, 3.0, 5.0, 9.0], [2.0, 7.0]),
        ([1.0, 3.0, None, 9.0], [2.0, 9.0]),
        ([1.0, 3.0, 5.0, math.inf], [2.0, 5.0]),
        ([1.0, 3.0, None, None], [2.0, None]),
        ([], [None, None]),
    ],
)
def test_means_of_slices_are_those_of_bins(values, means):
    assert axes.means(values, (1.0, 2.0, 3.0, 4.0), [slice(0, 2), slice(2, 4)]) == means


def test_the_value_at_a_moment_is_that_of_the_tick_around_it():
    series = Series(at_s=(0.5, 1.0, 1.5), values={"step_ms": (1.0, None, 3.0)})
    found = [axes.value_at(series, "step_ms", at_s) for at_s in (0.0, 0.5, 0.6, 1.2, 1.5, 1.6)]
    assert found == [1.0, 1.0, None, 3.0, 3.0, None]


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_bin_is_the_mean_of_what_was_measured_in_it(value):
    time_range = TimeRange(begin_s=0.0, end_s=2.0, columns=2)
    assert axes.cut([value, 3.0], [(0, slice(0, 2))], time_range) == [[(0.5, 3.0)]]
    assert axes.cut([value], [(0, slice(0, 1))], time_range) == []


def test_a_sum_beyond_a_float_is_no_point():
    time_range = TimeRange(begin_s=0.0, end_s=1.0, columns=1)
    assert axes.cut([1e308, 1e308], [(0, slice(0, 2))], time_range) == []


def test_a_gap_breaks_the_line_and_is_never_a_zero():
    values = [5.0 if not 20 <= tick < 40 else None for tick in range(60)]
    runs = points(ticks(0, 60), values)
    assert len(runs) == 2
    assert {y for run in runs for _, y in run} == {5.0}


def test_a_drawn_bin_does_not_change_when_time_goes_on():
    values = [math.sin(tick) for tick in range(700)]
    at_s, view = ticks(0, 700), TimeView(span_s=200.0)
    before = dict(p for run in points(at_s[:600], values[:600], view=view) for p in run)
    after = dict(p for run in points(at_s[:613], values[:613], view=view) for p in run)
    common = sorted(before.keys() & after.keys())[1:-1]  # the range may cut the outer ones
    assert len(common) > 20
    assert [before[at] for at in common] == [after[at] for at in common]


# ── what a chart is scaled by, and the newest value ─────────────────────────────────────


def line(*values):
    return [[(float(at), value) for at, value in enumerate(values)]]


def test_the_highest_of_no_point_is_zero():
    assert axes.highest([]) == 0.0
    assert axes.highest([*line(1.0, 3.0), *line(2.0)]) == 3.0


def newest(values, rates=(), changed_s=0.0):
    series = Series(
        at_s=tuple(ticks(0, len(values))),
        values={"step_ms": tuple(values), "steps_per_s": tuple(rates)},
    )
    return axes.latest(series, "step_ms", changed_s)


RISING = [9.0, 9.0, 1.0, 2.0, 3.0, 4.0]
LEVEL = [9.0, 9.0, 9.0, 9.0]


@pytest.mark.parametrize(
    ("what", "values", "rates", "changed_s", "found"),
    [
        ("it is of what was measured", [None, 2.0, None, math.nan, math.inf], (), 0.0, 2.0),
        ("lately", [1.0, *[None] * (RECENT_TICKS - 1)], (), 0.0, 1.0),
        ("and not longer ago", [1.0, *[None] * RECENT_TICKS], (), 0.0, None),
        ("without a tick there is none", [], (), 0.0, None),
        ("it is a mean over two seconds", RISING, (), 0.0, 2.5),
        ("of steps", RISING, (2, 2, 2, 2, 2, 10), 0.0, 26 / 8),
        ("whose number may be unknown", [1.0, 2.0, 3.0, 4.0], (None,) * 4, 0.0, 2.5),
        ("of slow steps over five of them", RISING, [1] * 6, 0.0, 28 / 6),
        ("however long ago they began", [9.0] * 8 + [1.0] * 10, [1] * 18, 0.0, 1.0),
        ("as 4.5 are too few", [9.0] * 9 + [1.0] * 9, [1] * 18, 0.0, 1.8),
        ("in five ticks", [9.0, 9.0, 1.0, 1.0, 1.0, 1.0, 6.0], [2] * 7, 0.0, 2.0),
        ("steps without a time are none", [9.0, 1.0, 1.0, 1.0, 1.0, None], [2] * 5 + [20], 0.0,
         13 / 5),
        ("nor are times without steps", [9.0, 9.0, 1.0, 1.0, 1.0, 1.0], [2, 2, 2, None, 2, 5], 0.0,
         27 / 11),
        ("the last step may have no end", [9.0, 1.0, 1.0, 1.0, 1.0, None], [4] * 6, 0.0, 1.0),
        ("five in two ticks are enough", [9.0, 9.0, 1.0, 3.0, 9.0, 9.0],
         [None, None, 6, 6, None, None], 0.0, 2.0),
        ("what was before the last change is not in it", [*LEVEL, 1.0, 3.0], (), 2.0, 2.0),
        ("nor is the tick of the change", [*LEVEL, 9.0, 3.0], (), 2.2, 3.0),
        ("unless there is no other", [*LEVEL, 9.0, 3.0], (), 7.0, 3.0),
    ],
)  # fmt: skip
def test_the_newest_value(what, values, rates, changed_s, found):
    assert newest(values, rates, changed_s) == found, what


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
    time_range = TimeRange(begin_s=begin_s, end_s=end_s, columns=columns)
    assert axes.time_ticks(time_range) == moments


@pytest.mark.parametrize("length", [30, 100, 300, 5000, 200_000])
@pytest.mark.parametrize("columns", [1, 9, 40, 180])
def test_time_labels_have_room(length, columns):
    time_range = TimeRange(begin_s=17.0, end_s=17.0 + length, columns=columns)
    moments = axes.time_ticks(time_range)
    assert all(time_range.begin_s <= at <= time_range.end_s for at in moments)
    assert len(moments) <= columns // 8 + 2


HOUR_S = 3600.0
LIVE = TimeView()


def test_zooming_goes_through_round_spans_to_the_whole_run_and_back():
    view, spans = LIVE, []
    for direction in [+1] * 6 + [-1] * 9:
        view = view.zoomed(direction, HOUR_S)
        spans.append(view.span_s)
    assert spans == [300, 600, 1800, *[None] * 3, 1800, 600, 300, 120, 60, 30, 15, 5, 2]


def test_zoom_freeze_cursor_and_range():
    frozen, moved = LIVE.frozen(53.0), LIVE.moved(-1, 2.0, 99.0)
    jumped, changes = LIVE.jumped(-1, (10.0, 44.0, 90.0), 100.0), (10.0, 44.0, 90.0)
    beside, last = TimeView(cursor_s=5.0, end_s=20.0), TimeView(cursor_s=9.5, end_s=10.0)
    earlier = LIVE.at(500.0, 600.0).at(450.0, 600.0)
    for what, (view, expected) in {
        "a span that the run does not fill is not offered": (
            LIVE.zoomed(+1, 40.0), {"span_s": None}),
        "a shorter one is": (LIVE.zoomed(-1, 40.0), {"span_s": 30}),
        "the shortest one always is": (LIVE.zoomed(-1, 3.0), {"span_s": SPANS_S[0]}),
        "a run as long as a span is shown whole": (
            TimeView(span_s=30.0).zoomed(+1, 60.0), {"span_s": None}),
        "a longer one is not": (TimeView(span_s=30.0).zoomed(+1, 61.0), {"span_s": 60.0}),
        "the whole run is one key away": (LIVE.whole(), {"span_s": None}),
        "freezing keeps what is shown": (frozen, {"end_s": 53.0}),
        "and again follows the run": (frozen.frozen(60.0), LIVE),
        "live, a frozen view follows the run": (LIVE.frozen(60.0).live(), LIVE),
        "live, there is no cursor": (LIVE.at(5.0, 60.0).live(), LIVE),
        "the cursor starts before the newest column, in the middle of one": (
            LIVE.moved(-1, 2.0, 100.0), {"cursor_s": 97.0}),
        "from there it moves by columns": (
            LIVE.moved(-1, 2.0, 100.0).moved(-1, 2.0, 104.0), {"cursor_s": 95.0}),
        "in both directions": (
            LIVE.moved(-1, 2.0, 100.0).moved(+1, 2.0, 104.0), {"cursor_s": 99.0}),
        "it freezes the charts": (moved, {"cursor_s": 97.0, "end_s": 99.0}),
        "up to the newest column": (moved.moved(+1, 2.0, 99.0), {"cursor_s": 99.0}),
        "behind it they are live again": (moved.moved(+1, 2.0, 99.0).moved(+1, 2.0, 99.0), LIVE),
        "live, it does not move to the right": (LIVE.moved(+1, 2.0, 99.0), LIVE),
        "behind the last column there is no cursor": (last.moved(+1, 1.0, 10.0), TimeView()),
        "before it there is": (last.moved(-1, 1.0, 10.0), {"cursor_s": 8.5}),
        "in sight, it scrolls nothing": (LIVE.at(500.0, 600.0), {"end_s": 600.0}),
        "to the left of that, by as little as it takes": (earlier, {"end_s": 570.0}),
        "and to the right": (earlier.at(580.0, 600.0), {"end_s": 580.0}),
        "where the whole run is shown it scrolls nothing": (
            TimeView().whole().at(5.0, 10.0), TimeView(span_s=None, end_s=10.0, cursor_s=5.0)),
        "it jumps to the lever change before": (jumped, {"cursor_s": 90.0}),
        "and to the one before that": (jumped.jumped(-1, changes, 100.0), {"cursor_s": 44.0}),
        "and back": (jumped.jumped(-1, changes, 100.0).jumped(+1, changes, 100.0), jumped),
        "behind the last change the charts are live": (jumped.jumped(+1, changes, 100.0), LIVE),
        "before the first change it stays": (
            LIVE.at(10.0, 100.0).jumped(-1, changes, 100.0), LIVE.at(10.0, 100.0)),
        "without a change it does not appear": (LIVE.jumped(-1, (), 100.0), LIVE),
        "from a change it jumps to the next": (
            beside.jumped(+1, (2.0, 5.0, 9.0), 20.0), {"cursor_s": 9.0}),
        "and to the one before it": (beside.jumped(-1, (2.0, 5.0, 9.0), 20.0), {"cursor_s": 2.0}),
        "a range has two ends in any order": (
            LIVE.between(90.0, 0.5), {"span_s": 89.5, "end_s": 90.0}),
        "and begins where it is chosen": (
            LIVE.between(0.5, 10.0), {"span_s": 9.5, "end_s": 10.0}),
        "it is not shorter than the shortest": (LIVE.between(30.0, 31.0), {"span_s": SPANS_S[0]}),
        "and does not begin before the run": (
            LIVE.between(-5.0, 10.0), {"span_s": 10.0, "end_s": 10.0}),
    }.items():  # fmt: skip
        found = expected if isinstance(expected, dict) else structs.asdict(expected)
        assert structs.asdict(view).items() >= found.items(), what


@given(st.integers(-4000, 1000), st.sampled_from([0.5, 1.0, 2.5, 18.0]), st.floats(0.5, HOUR_S))
def test_the_cursor_stays_in_the_run_and_in_sight(columns, column_s, newest_s):
    view = LIVE.moved(columns, column_s, newest_s)
    if view.cursor_s is not None:
        assert 0 <= view.cursor_s <= newest_s
        assert view.end_s - view.span_s <= view.cursor_s <= view.end_s
