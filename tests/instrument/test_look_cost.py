"""What a step measured in full costs, from its length beside that of counted ones."""

import pytest

from gpudash.instrument.look_cost import FEWEST, LookCost


def taken(pairs):
    cost = LookCost()
    for counted_ms, full_ms in pairs:
        cost.take(counted_ms, 10)
        cost.take(full_ms, 1)
    return cost.ms


@pytest.mark.parametrize(
    ("pairs", "ms"),
    [
        ([(30.0, 31.5)] * FEWEST, 1.5),
        ([(30.0, 30.5)] * FEWEST + [(30.0, 90.0)] * 2, 0.5),  # a few long steps do not count
        ([(30.0, 29.9)] * FEWEST, 0),  # the device hides it
        ([(30.0, 31.0)] * (FEWEST - 1), 0),  # nothing is known so far
    ],
)
def test_it_is_what_the_step_takes_longer(pairs, ms):
    assert taken(pairs) == ms


def test_steps_of_other_settings_are_not_compared():
    cost = LookCost()
    for _ in range(FEWEST):
        cost.take(30.0, 10)
        cost.interrupt()
        cost.take(60.0, 1)
    assert cost.ms == 0
