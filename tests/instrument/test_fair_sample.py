"""Which steps are measured in full: as many as may be, and long ones as often as short ones."""

import pytest

from gpudash.instrument.fair_sample import FairSample


def taken(lasts_s, steps=4000, every_s=0.1):
    """Train so many steps; return those that were taken, and how long all took."""
    sample, now_s, found = FairSample(every_s), 100.0, []
    for step in range(1, steps + 1):
        if sample.take(now_s):
            found.append(step)
        now_s += lasts_s(step)
        sample.ended(step)
    return found, now_s - 100.0


@pytest.mark.parametrize("step_s", [0.001, 0.01, 0.03])
def test_a_step_is_taken_each_so_many_seconds_and_the_first_one(step_s):
    found, took_s = taken(lambda _: step_s)
    assert found[0] == 1
    assert len(found) == pytest.approx(took_s / 0.1, rel=0.15)


@pytest.mark.parametrize("step_s", [0.11, 30.0])
def test_of_steps_as_long_as_that_each_is_taken(step_s):
    assert len(taken(lambda _: step_s, 200)[0]) == 200


@pytest.mark.parametrize(("each", "short_s", "long_s"), [(4, 0.002, 0.03), (8, 0.003, 0.2)])
def test_steps_that_are_long_now_and_then_are_taken_as_often_as_others(each, short_s, long_s):
    found, _ = taken(lambda step: short_s if step % each else long_s)
    long = sum(step % each == 0 for step in found)
    assert long / len(found) == pytest.approx(1 / each, rel=0.2)


def test_ranks_whose_steps_take_nearly_alike_take_nearly_the_same_ones():
    one, other = ({*taken(lambda _, ms=ms: ms / 1e3)[0]} for ms in (10.0, 10.2))
    assert len(one & other) >= 0.9 * len(one | other)


def test_after_a_long_first_step_no_more_are_taken_than_of_others_for_long():
    found, _ = taken(lambda step: 30.0 if step == 1 else 0.01)
    assert sum(step > 100 for step in found) == pytest.approx(3900 / 10, rel=0.15)


def test_a_step_behind_those_that_were_only_counted_is_taken():
    sample = FairSample(1e6)
    assert sample.take(100.0)
    sample.ended(1)
    assert not sample.take(101.0)
    sample.ended(10, count=9)
    assert sample.take(110.0)


def test_the_next_step_is_known_when_one_begins_and_none_of_short_cycles_is_left_out():
    sample, now_s, due, found = FairSample(0.1), 100.0, 1, []
    for step in range(1, 2000):
        if step == due:
            sample.take(now_s)
            due = sample.after(0.05, now_s)
            found.append(step % 4)
        now_s += 0.016 if step % 4 else 0.021
        sample.ended(step)
    assert len(found) == pytest.approx((now_s - 100.0) / 0.05, rel=0.1)
    assert all(found.count(place) == pytest.approx(len(found) / 4, rel=0.1) for place in range(4))
