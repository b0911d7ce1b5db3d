"""Two trainings that take turns are drawn as one curve, start after start."""

from gpudash.snapshot import Series
from gpudash.views.in_turns import followed, in_turns


def series(begin_s, *steps_per_s, **others):
    ends = tuple(begin_s + 0.5 * (tick + 1) for tick in range(len(steps_per_s)))
    return Series(at_s=ends, values={"steps_per_s": steps_per_s, **others})


def test_what_both_do_in_a_tick_adds_up_and_all_else_is_of_the_one_that_trains():
    a = series(0.0, 8.0, 2.0, 0.0, step_ms=(5.0, 5.0, None), cpu_pct=(90.0, 50.0, 1.0))
    both = in_turns(a, series(0.5, 3.0, 4.0, 4.0, step_ms=(9.0, 9.0, 9.0)))
    assert both.at_s == (0.5, 1.0, 1.5)  # the last is not known of A
    assert both.of("steps_per_s") == (8.0, 5.0, 4.0)
    assert both.of("step_ms") == (5.0, 9.0, 9.0)
    assert both.of("cpu_pct") == (90.0, 50.0, 1.0)
    assert in_turns(a, Series()).of("steps_per_s") == a.of("steps_per_s")


def test_a_start_follows_the_one_before():
    first, second = series(0.0, 8.0, 8.0, cpu_pct=(90.0, 90.0)), series(5.0, 7.0, step_ms=(6.0,))
    whole = followed(first, second)
    assert whole.at_s == (0.5, 1.0, 5.5)
    assert whole.of("cpu_pct") == (90.0, 90.0, None)
    assert whole.of("step_ms") == (None, None, 6.0)
    assert followed(first, Series()).at_s == first.at_s
