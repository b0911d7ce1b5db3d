"""How long collectives run, and which part of that the computation waits for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.instrument.collectives import collective_times

moments = st.integers(0, 60)
spans = st.tuples(moments, moments).map(lambda pair: (min(pair), max(pair)))


@pytest.mark.parametrize(
    ("phase", "exposed_ms"),
    [
        ((1, 5), 3),  # a wait from 1 to 4, and a copy to 5
        ((2, 3), 0),  # no wait: the collective goes on after it
        ((5, 8), 0),  # it has ended before
        ((-3, 4), 4),  # the collective has not begun yet: it waits for something else
    ],
)
def test_a_phase_waits_until_the_last_collective_that_ends_within_it(phase, exposed_ms):
    assert collective_times([(0, 4), (9, 20)], [phase]).exposed_ms == exposed_ms


@given(st.lists(spans, max_size=6), st.lists(spans, max_size=6))
def test_times_are_those_of_counting_each_millisecond(collectives, phases):
    def within(one, at):
        return one[0] <= at < one[1]

    def waits(at):
        for begin, end in phases:
            ends = [last for _, last in collectives if begin < last <= end]
            if ends and begin <= at < max(ends):
                return True
        return False

    running = [at for at in range(60) if any(within(one, at) for one in collectives)]
    exposed = [at for at in running if waits(at)]
    assert collective_times(collectives, phases) == (len(running), len(exposed))
