"""Steps whose end is recognised only in the middle of the next one."""

import math

import pytest

from gpudash.instrument.clock import Clock
from gpudash.metrics import phases_ms
from gpudash.protocol.training import Phase
from tests.instrument.test_clock import finished

PHASES = tuple(Phase(name=name, label=name, lane="train") for name in ("forward", "optimizer"))


def marked(device, mark, **at_ms):
    for name, at in at_ms.items():
        device.next_ms = at
        mark(name)


def split(clock, device, at_ms):
    device.next_ms, device.host_s = at_ms, 100 + at_ms / 1e3
    return clock.split()


def test_a_step_ends_where_it_was_split_and_later_marks_belong_to_the_next(clock, device):
    marked(device, clock.begin(), forward=0, optimizer=3)
    marked(device, split(clock, device, 5), forward=5)
    device.host_s = 100.009
    marked(device, clock.end_at_split(1, 8, None, 0.002), optimizer=9)
    device.next_ms, device.host_s = 12, 100.012
    clock.end(2, 8)
    one, two = finished(clock, device, 101)
    assert (one.step_ms, two.step_ms) == (5, 7)
    assert (phases_ms(one.values), phases_ms(two.values)) == (
        {"forward": 3, "optimizer": 2},
        {"forward": 4, "optimizer": 3},
    )
    assert (one.values["data_ms"], one.values["host_ms"]) == (2, pytest.approx(3))
    assert two.values["host_ms"] == pytest.approx(7)


def test_a_step_that_was_joined_again_is_one_step(clock, device):
    marked(device, clock.begin(), forward=0, optimizer=3)
    marked(device, split(clock, device, 5), forward=5)
    marked(device, clock.join(), optimizer=9)
    device.next_ms = 12
    clock.end(1, 8)
    (step,) = finished(clock, device, 101)
    assert step.step_ms == 12
    assert phases_ms(step.values) == {"forward": 3 + 4, "optimizer": 2 + 3}


@pytest.mark.parametrize("joins", [False, True])
def test_phases_are_measured_now_and_then(device, joins):
    clock = Clock(device, PHASES, now=device.now, phases_every_s=0.1)
    mark = clock.begin()
    for number in range(1, 60):
        at_ms = number * 10
        marked(device, mark, forward=at_ms, optimizer=at_ms + 3)
        mark = split(clock, device, at_ms + 5)
        marked(device, mark, forward=at_ms + 5)
        if joins:
            marked(device, clock.join(), optimizer=at_ms + 7)
            device.next_ms = at_ms + 9
            clock.end(number, 8)
            mark = clock.begin()
        else:
            mark = clock.end_at_split(number, 8, None, 0.0)
    steps = finished(clock, device, 101)
    measured = [step.values for step in steps if "optimizer_ms" in step.values]
    assert 8 <= len(measured) <= 16
    for values in measured[1:]:
        assert values["optimizer_ms"] == (4 if joins else 2)
    assert len(device.times_ms) - len(device.free) <= 8


def test_unmeasured_steps_are_split_with_no_more_than_one_timestamp(device):
    clock = Clock(device, PHASES, now=device.now, phases_every_s=math.inf)
    for number in (1, 2):  # the measured ones
        clock.begin()
        clock.end(number, 8)
    before = device.recorded
    clock.begin()("forward")
    clock.split()("forward")
    clock.end_at_split(3, 8, None, 0.0)("optimizer")
    clock.end(4, 8)
    assert device.recorded == before + 2


def test_an_iteration_that_failed_is_forgotten(clock, device):
    clock.begin()
    split(clock, device, 5)
    clock.interrupt()
    clock.begin()
    device.next_ms, device.host_s = 20, 100.02
    clock.end(1, 8)
    (step,) = finished(clock, device, 101)
    assert step.step_ms == 15
