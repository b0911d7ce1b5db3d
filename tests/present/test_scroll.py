"""The scroll position of a list, as rows are added and the cursor moves."""

from hypothesis import given
from hypothesis import strategies as st

from gpudash.present.cells import Scroll


def test_the_end_is_followed_until_a_row_is_chosen():
    assert Scroll().chosen(10) == 9
    assert Scroll().in_sight(10, 4) == range(6, 10)
    assert Scroll().in_sight(11, 4) == range(7, 11)


def test_the_list_scrolls_only_as_far_as_brings_the_chosen_row_into_sight():
    up = Scroll().at(3, 10, 4)
    assert up.in_sight(10, 4) == range(3, 7)
    assert up.at(5, 10, 4).in_sight(10, 4) == range(3, 7)
    assert up.at(8, 10, 4).in_sight(10, 4) == range(5, 9)


def test_the_last_row_is_followed_again():
    assert Scroll().at(3, 10, 4).at(9, 10, 4) == Scroll()


def test_none_of_no_rows_is_chosen():
    assert Scroll().chosen(0) == -1
    assert Scroll().at(3, 0, 4) == Scroll()
    assert not Scroll().in_sight(0, 4)


@given(st.lists(st.integers(-5, 60)), st.integers(0, 50), st.integers(1, 12))
def test_the_chosen_row_is_always_in_sight(rows, count, height):
    scroll = Scroll()
    for row in rows:
        scroll = scroll.at(row, count, height)
        sight = scroll.in_sight(count, height)
        assert len(sight) == min(count, height)
        if count:
            assert scroll.chosen(count) in sight
