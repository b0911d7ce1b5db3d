"""The scroll position of a list, as rows are added and the cursor moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.present.cells import Scroll

UP = Scroll().at(3, 10, 4)


@pytest.mark.parametrize(
    ("what", "scroll", "count", "chosen", "in_sight"),
    [
        ("the end is followed until a row is chosen", Scroll(), 10, 9, range(6, 10)),
        ("also as rows are added", Scroll(), 11, 10, range(7, 11)),
        ("a chosen row is brought into sight", UP, 10, 3, range(3, 7)),
        ("another row in sight scrolls nothing", UP.at(5, 10, 4), 10, 5, range(3, 7)),
        ("a row below scrolls as far as it takes", UP.at(8, 10, 4), 10, 8, range(5, 9)),
        ("the last row is followed again", UP.at(9, 10, 4), 11, 10, range(7, 11)),
        ("none of no rows is chosen", Scroll(), 0, -1, range(0)),
        ("nor can one be", Scroll().at(3, 0, 4), 10, 9, range(6, 10)),
    ],
)
def test_a_list_of_four_rows(what, scroll, count, chosen, in_sight):
    assert (scroll.chosen(count), scroll.in_sight(count, 4)) == (chosen, in_sight), what


@given(st.lists(st.integers(-5, 60)), st.integers(0, 50), st.integers(1, 12))
def test_the_chosen_row_is_always_in_sight(rows, count, height):
    scroll = Scroll()
    for row in rows:
        scroll = scroll.at(row, count, height)
        sight = scroll.in_sight(count, height)
        assert len(sight) == min(count, height)
        if count:
            assert scroll.chosen(count) in sight
