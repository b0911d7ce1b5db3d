"""What a step measured in full costs, from its length beside that of counted ones."""

from gpudash.instrument.look_cost import FEWEST, LookCost


def taken(pairs):
    cost = LookCost()
    for counted_ms, full_ms in pairs:
        cost.take(counted_ms, 10)
        cost.take(full_ms, 1)
    return cost.ms


def test_it_is_what_the_step_takes_longer():
    assert taken([(30.0, 31.5)] * FEWEST) == 1.5


def test_a_few_long_steps_do_not_count():
    assert taken([(30.0, 30.5)] * FEWEST + [(30.0, 90.0)] * 2) == 0.5


def test_where_the_device_hides_it_it_costs_nothing():
    assert taken([(30.0, 29.9)] * FEWEST) == 0


def test_before_some_looks_nothing_is_known():
    assert taken([(30.0, 31.0)] * (FEWEST - 1)) == 0


def test_steps_of_other_settings_are_not_compared():
    cost = LookCost()
    for _ in range(FEWEST):
        cost.take(30.0, 10)
        cost.interrupt()
        cost.take(60.0, 1)
    assert cost.ms == 0
