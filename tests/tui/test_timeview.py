"""Zoom, freeze and cursor of the time axis that all charts share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.tui.timeview import SPANS_S, TimeView

HOUR_S = 3600.0
LIVE = TimeView()


def test_zooming_goes_through_round_spans_to_the_whole_run_and_back():
    view, spans = LIVE, []
    for _ in range(6):
        view = view.zoomed(+1, HOUR_S)
        spans.append(view.span_s)
    assert spans == [300, 600, 1800, None, None, None]
    for _ in range(9):
        view = view.zoomed(-1, HOUR_S)
        spans.append(view.span_s)
    assert spans[6:] == [1800, 600, 300, 120, 60, 30, 15, 5, 2]


def test_a_span_that_the_run_does_not_fill_is_not_offered():
    assert LIVE.zoomed(+1, 40.0).span_s is None
    assert LIVE.zoomed(-1, 40.0).span_s == 30
    assert LIVE.zoomed(-1, 3.0).span_s == SPANS_S[0]


def test_the_whole_run_is_one_key_away():
    assert LIVE.whole().span_s is None


def test_freezing_keeps_what_is_shown_and_again_follows_the_run():
    frozen = LIVE.frozen(53.0)
    assert frozen.end_s == 53.0
    assert frozen.frozen(60.0) == LIVE


def test_the_cursor_starts_before_the_newest_column_and_stands_in_the_middle_of_one():
    view = LIVE.moved(-1, 2.0, 100.0)
    assert view.cursor_s == 97.0
    assert view.moved(-1, 2.0, 104.0).cursor_s == 95.0
    assert view.moved(+1, 2.0, 104.0).cursor_s == 99.0


def test_the_cursor_freezes_the_charts_and_behind_the_newest_column_they_are_live_again():
    view = LIVE.moved(-1, 2.0, 99.0)
    assert (view.cursor_s, view.end_s) == (97.0, 99.0)
    assert view.moved(+1, 2.0, 99.0).cursor_s == 99.0
    assert view.moved(+1, 2.0, 99.0).moved(+1, 2.0, 99.0) == LIVE
    assert LIVE.moved(+1, 2.0, 99.0) == LIVE


@given(st.integers(-4000, 1000), st.sampled_from([0.5, 1.0, 2.5, 18.0]), st.floats(0.5, HOUR_S))
def test_the_cursor_stays_in_the_run_and_in_sight(columns, column_s, newest_s):
    view = LIVE.moved(columns, column_s, newest_s)
    if view.cursor_s is not None:
        assert 0 <= view.cursor_s <= newest_s
        assert view.end_s - view.span_s <= view.cursor_s <= view.end_s


def test_the_range_scrolls_only_where_the_cursor_leaves_it():
    view = LIVE.at(500.0, 600.0)
    assert view.end_s == 600.0
    assert view.at(450.0, 600.0).end_s == 570.0
    assert view.at(450.0, 600.0).at(580.0, 600.0).end_s == 580.0


def test_zooming_in_keeps_the_cursor_in_sight():
    view = LIVE.at(500.0, 600.0).zoomed(-1, 600.0)
    assert view.end_s - view.span_s <= 500.0 <= view.end_s


def test_the_cursor_jumps_from_one_lever_change_to_the_next():
    changes = (10.0, 44.0, 90.0)
    view = LIVE.jumped(-1, changes, 100.0)
    assert view.cursor_s == 90.0
    assert view.jumped(-1, changes, 100.0).cursor_s == 44.0
    assert view.jumped(-1, changes, 100.0).jumped(+1, changes, 100.0) == view
    assert view.jumped(+1, changes, 100.0) == LIVE


def test_before_the_first_lever_change_the_cursor_stays():
    view = LIVE.at(10.0, 100.0)
    assert view.jumped(-1, (10.0, 44.0), 100.0) == view
    assert LIVE.jumped(-1, (), 100.0) == LIVE


def test_a_range_is_chosen_by_its_two_ends_in_any_order():
    view = LIVE.between(90.0, 30.0)
    assert (view.span_s, view.end_s) == (60.0, 90.0)
    assert LIVE.between(30.0, 31.0).span_s == SPANS_S[0]


@pytest.mark.parametrize("view", [LIVE.at(5.0, 60.0), LIVE.frozen(60.0)])
def test_live_has_no_cursor(view):
    assert view.live() == LIVE
