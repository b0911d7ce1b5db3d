"""Where a step is delayed: a host and a device in made-up time, with every kind of wait."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from gpudash.instrument import slowing
from gpudash.instrument.slowing import Slowing
from gpudash.protocol.commands import Slow

STEPS = 20


class Machine:
    """A host that launches work, and a device that does it in order; times in ms."""

    def __init__(self):
        self.host_ms = self.device_ms = 0.0

    def perf_counter(self):
        self.host_ms += 1e-3  # what a look at the clock takes
        return self.host_ms / 1e3

    def launches(self, host_ms, device_ms):
        self.host_ms += host_ms
        self.device_ms = max(self.device_ms, self.host_ms) + device_ms

    def waits(self):
        self.host_ms = max(self.host_ms, self.device_ms)

    def query(self):
        return self.host_ms >= self.device_ms


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(slowing, "time", made)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: made)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return made


def slope(machine, step, ms=1.0):
    """By how much a step grows with the host's delay, as a share of that."""
    taken_ms = []
    for delay_ms in (0.0, ms):
        delayed = Slowing(torch.device("cuda"))
        delayed.begin(Slow(part="host", ms=delay_ms))
        machine.waits()
        began_ms = machine.host_ms
        for _ in range(STEPS):
            delayed.step()
            step(machine, delayed.at_mark)
        machine.waits()
        taken_ms.append((machine.host_ms - began_ms) / STEPS)
    return (taken_ms[1] - taken_ms[0]) / ms


def trains(machine, mark, waits_before=""):
    """A step, in which the host waits for the device before this phase."""
    for phase, host_ms, device_ms in (("forward", 2, 5), ("backward", 2, 5), ("optimizer", 0.5, 1)):
        if phase == waits_before:
            machine.waits()
        mark(phase)
        machine.launches(host_ms, device_ms)


def never_waits_for_a_slow_device(machine, mark):
    trains(machine, mark)
    if machine.device_ms - machine.host_ms > 30.0:  # launches wait for room
        machine.host_ms = machine.device_ms - 30.0


def launches_slowly(machine, mark):
    for phase in ("forward", "backward", "optimizer"):
        mark(phase)
        for _ in range(10):
            machine.launches(0.3, 0.02)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (partial(trains, waits_before="forward"), 1.0),  # reads its loss after the update
        (partial(trains, waits_before="backward"), 1.0),
        (never_waits_for_a_slow_device, 0.0),
        (launches_slowly, 1.0),
    ],
)
def test_a_host_is_delayed_where_nothing_hides_it(machine, step, expected):
    assert slope(machine, step) == pytest.approx(expected, abs=0.1)


def test_a_step_without_marks_is_delayed_at_its_border(machine):
    assert slope(machine, lambda m, _: m.launches(3.0, 1.0)) == pytest.approx(1.0, abs=0.1)


def test_each_step_is_delayed_once(machine):
    delayed = Slowing(torch.device("cuda"))
    delayed.begin(Slow(part="host", ms=1.0))
    delayed.step()
    began_ms = machine.host_ms
    for phase in ("forward", "backward", "optimizer"):
        delayed.at_mark(phase)
    assert machine.host_ms - began_ms < 0.1


def test_a_captured_stream_is_not_asked(machine, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", SimpleNamespace)  # would fail
    delayed = Slowing(torch.device("cuda"))
    delayed.begin(Slow(part="host", ms=1.0))
    delayed.step()
    delayed.at_mark("forward")


def test_a_cpu_computes_on_the_host():
    delayed = Slowing(torch.device("cpu"))
    assert delayed.why_not(Slow(part="device", ms=1.0))
    assert not delayed.is_on
    delayed.begin(Slow(part="host", ms=0.01))
    assert delayed.is_on
    delayed.step()
    delayed.begin(None)
    assert not delayed.is_on
