import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.statistics import Batches, Means, mean, percentiles

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


# ── how sure a rate is ──────────────────────────────────────────────────────────────────


def error_of(rates):
    """The standard error of steps of 1 s at these rates."""
    batches = Batches()
    for rate in rates:
        batches.add(1.0, rate)
    return batches.error()


def test_a_rate_of_less_than_eight_batches_of_two_seconds_has_no_error():
    assert error_of([10.0] * 15) is None
    assert error_of([10.0] * 16) == 0.0


@pytest.mark.parametrize("rate", [0.0, math.nan, math.inf])
def test_a_rate_that_is_no_number_above_zero_has_no_error(rate):
    assert error_of([10.0] * 50 + [rate] * 50) is None


@pytest.mark.parametrize("steps", [16, 31, 32, 100, 1000])
def test_batches_are_never_fewer_again_than_they_were(steps):
    assert error_of([10.0] * steps) == 0.0


def test_steps_that_go_together_are_less_sure_than_steps_that_take_turns():
    together = error_of([10.0] * 64 + [20.0] * 64)
    in_turns = error_of([10.0, 20.0] * 64)
    assert in_turns < 0.01 < together


def test_the_error_is_the_standard_error_of_the_logarithms_of_the_batches():
    rates = [10.0, 20.0] * 4
    spread = math.log(2) / 2  # of each batch around the mean of all
    batches = [rate for rate in rates for _ in range(2)]  # 2 s each
    assert error_of(batches) == pytest.approx(math.sqrt(8 * spread**2 / 7 / 8))
    assert error_of([rate / 100 for rate in batches]) == pytest.approx(error_of(batches))


def test_from_16_batches_on_they_are_twice_as_long():
    """Rates that take turns from batch to batch differ no longer: each new one holds both."""
    in_turns = [10.0, 10.0, 20.0, 20.0] * 8
    assert error_of(in_turns[:30]) > 0.05
    assert error_of(in_turns) == 0.0
    assert error_of([*in_turns, *[40.0] * 3]) == 0.0  # the ninth batch has 4 s
    assert error_of([*in_turns, *[40.0] * 4]) > 0.05


def test_a_value_counts_once_unless_its_weight_says_more():
    means = Means()
    means.add({"a": 1.0, "b": None, "c": math.nan})
    means.add({"a": 4.0}, 2.0)
    assert means.values() == {"a": 3.0}
