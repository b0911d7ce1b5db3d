import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.statistics import Means, mean, percentiles

FINITE = st.lists(st.floats(-1e12, 1e12), min_size=1)


def of(values, *qs):
    return percentiles(((value, 1) for value in values), qs)


def test_a_percentile_between_two_values_is_interpolated():
    assert of([10.0, 20.0], 50) == (15.0,)
    assert of([10.0, 20.0, 90.0], 25) == (15.0,)
    assert of([4.0, 1.0, 3.0, 2.0], 95) == pytest.approx((3.85,))


def test_the_ends_are_the_extremes_and_one_value_is_every_percentile():
    assert of([3.0, 1.0, 2.0], 0, 100) == (1.0, 3.0)
    assert of([7.0], 0, 50, 100) == (7.0, 7.0, 7.0)


def test_nothing_has_no_percentile_and_no_mean():
    assert percentiles([]) == (None, None)
    assert mean([]) is None
    assert mean([None, None]) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_percentile_refuses_what_is_not_finite(value):
    with pytest.raises(ValueError, match="finite"):
        of([1.0, value], 50)


def test_a_mean_leaves_out_what_was_not_measured():
    assert mean([None, 1.0, math.nan, 3.0]) == 2.0


@given(FINITE, st.floats(0, 100), st.floats(0, 100))
def test_percentiles_rise_with_q_and_stay_within_the_values(values, one, other):
    low, high = of(values, *sorted((one, other)))
    assert min(values) <= low <= high <= max(values)


def test_a_value_counts_once_unless_its_weight_says_more():
    means = Means()
    means.add({"a": 1.0, "b": None, "c": math.nan})
    means.add({"a": 4.0}, 2.0)
    assert means.values() == {"a": 3.0}
