"""Collectives, which run beside the phases, are timed in one step of each half second."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpudash.instrument.clock import Clock
from gpudash.instrument.collectives import collective_times
from gpudash.instrument.reporter import instruments
from gpudash.protocol.training import Phase
from tests.instrument.test_clock import finished

NAMES = ("forward", "communication", "backward")
PHASES = tuple(Phase(name=name, label=name, lane="train") for name in NAMES)


def at(device, at_ms):
    device.next_ms, device.host_s = at_ms, 100 + at_ms / 1e3


def borders(clock, device, *at_ms):
    """Record the begin of a collective, its end, and the ends of those that follow it."""
    recorded = []
    for one in at_ms:
        at(device, one)
        recorded.append(clock.timestamp())
    return recorded


def step(clock, device, number, began_ms=0, until=None):
    """Train 20 ms: a wait from 5 to 12, of which a collective takes until 10."""
    at(device, began_ms)
    mark = clock.begin()
    mark("forward")
    calls = []
    if clock.times_collectives:
        calls.append(borders(clock, device, began_ms + 2, began_ms + (until or 10)))
    for name, later_ms in (("communication", 5), ("backward", 12)):
        at(device, began_ms + later_ms)
        mark(name)
    at(device, began_ms + 20)
    clock.end(number, collectives=calls)
    return bool(calls)


def test_their_time_and_the_exposed_part_of_it_are_the_devices(clock, device):
    step(clock, device, 1)
    assert clock.collective_times is None
    finished(clock, device, 101)
    assert clock.collective_times == (8, 5)
    assert {device.times_ms.index(at_ms) for at_ms in (2, 10)} <= device.free  # used again


def test_a_collective_that_follows_another_begins_at_its_end(clock, device):
    clock.begin()("communication")
    calls = [borders(clock, device, 1, 4, 9), borders(clock, device, 12, 13)]
    at(device, 20)
    clock.end(1, collectives=calls)
    finished(clock, device, 101)
    assert clock.collective_times == (9, 9)


def test_they_are_timed_once_in_half_a_second_and_stay_known_between(clock, device):
    timed = [step(clock, device, 1 + n, 20 * n) for n in range(60)]
    assert [n for n, is_timed in enumerate(timed) if is_timed] == [0, 25, 50]
    finished(clock, device, 200)
    assert clock.collective_times == (8, 5)


def test_a_new_segment_has_none_until_its_own_are_timed(clock, device):
    step(clock, device, 1)
    clock.segment = 1
    step(clock, device, 2, 20)
    finished(clock, device, 100.05)
    assert clock.collective_times is None
    step(clock, device, 3, 600)
    finished(clock, device, 101)
    assert clock.collective_times == (8, 5)


def test_only_a_step_with_phases_times_them(device):
    clock = Clock(device, PHASES, now=device.now, phases_every_s=1.0)
    clock._collectives_every_s = 0.0
    assert [step(clock, device, 1 + n, 20 * n) for n in range(4)] == [True, True, False, False]


def test_without_the_begin_or_end_of_one_they_are_unknown(clock, device):
    clock._collectives_every_s = 0.0
    step(clock, device, 1)
    clock.begin()
    clock.end(2, collectives=None)
    finished(clock, device, 101)
    assert clock.collective_times is None


def test_a_collective_that_goes_on_after_the_step_is_not_waited_for(clock, device):
    clock._collectives_every_s = 0.0
    step(clock, device, 1)
    finished(clock, device, 100.02)
    step(clock, device, 2, 20, until=25)
    still_running = device.times_ms.index(45)
    device.passed = lambda timestamp: timestamp != still_running
    assert [one.step for one in finished(clock, device, 100.041)] == [2]
    assert clock.collective_times == (8, 5)


def test_a_step_that_was_joined_is_timed_as_a_whole_or_not_at_all(clock, device):
    step(clock, device, 1)
    at(device, 400)
    clock.begin()("forward")
    assert not clock.times_collectives
    at(device, 600)
    clock.split()("forward")
    assert clock.times_collectives
    calls = [borders(clock, device, 601, 602)]
    clock.join()
    assert not clock.times_collectives
    at(device, 700)
    clock.end(2, collectives=calls)
    finished(clock, device, 101)
    assert clock.collective_times == (8, 5)


def test_a_step_that_ended_at_a_split_has_its_own_collectives(clock, device):
    clock._collectives_every_s = 0.0
    clock.begin()("communication")
    calls = [borders(clock, device, 1, 3)]
    at(device, 5)
    clock.split()("communication")
    later = [borders(clock, device, 6, 10)]
    at(device, 11)
    clock.end_at_split(1, 8, None, 0.0, collectives=calls)
    finished(clock, device, 100.012)
    assert clock.collective_times == (2, 2)
    at(device, 20)
    clock.end(2, collectives=later)
    finished(clock, device, 101)
    assert clock.collective_times == (4, 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_collective_is_timed_on_its_own_stream_and_the_wait_for_it_on_the_other():
    clock, _ = instruments(torch.device("cuda", 0), PHASES, phases_every_s=0.0)
    side, cycles = torch.cuda.Stream(), 20_000_000
    mark = clock.begin()
    mark("forward")
    with torch.cuda.stream(side):
        calls = [[clock.timestamp()]]
        torch.cuda._sleep(8 * cycles)
        calls[0].append(clock.timestamp())
    torch.cuda._sleep(cycles)
    mark("communication")
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda._sleep(cycles)  # as a copy of what has come
    mark("backward")
    clock.end(1, collectives=calls)
    assert not clock.finished()  # it does not wait
    torch.cuda.synchronize()
    ((step, _),) = clock.finished()
    ms, exposed_ms = clock.collective_times
    assert 0 < exposed_ms < ms < step.step_ms
    assert exposed_ms < step.values["communication_ms"]


# ── which part of their time is exposed ───────────────────────────────────────────────────


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
