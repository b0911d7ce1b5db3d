"""Step times of the last minute, second by second."""

from itertools import repeat

from gpudash.protocol.training import Step
from gpudash.ranks.rank import SPAN_S, StepHistory


def history(*steps: tuple[float, float]) -> StepHistory:
    found = StepHistory()
    for number, (finished_s, step_ms) in enumerate(steps, 1):
        found.add(Step(step=number, segment=0, finished_s=finished_s, step_ms=step_ms))
    return found


def test_a_second_has_the_mean_of_the_steps_that_finished_in_it():
    assert history((10.2, 4.0), (10.8, 6.0), (11.5, 7.0)).values(12.0) == (5.0, 7.0)


def test_a_second_that_is_not_over_is_left_out():
    assert history((10.2, 4.0), (11.5, 7.0)).values(11.9) == (4.0,)
    assert history((10.2, 4.0), (11.5, 7.0), (12.5, 9.0)).values(12.9) == (4.0, 7.0)


def test_a_second_without_a_step_has_no_time():
    assert history((10.2, 4.0), (13.5, 7.0)).values(16.1) == (4.0, None, None, 7.0, None, None)


def test_it_begins_with_the_first_step_and_keeps_a_minute():
    assert StepHistory().values(5.0) == ()
    kept = history(*((float(second), float(second)) for second in range(100)))
    assert kept.values(100.0) == tuple(map(float, range(100 - SPAN_S, 100)))
    assert kept.values(1000.0) == tuple(repeat(None, SPAN_S))
