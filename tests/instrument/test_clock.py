"""The clock turns timestamps into device times, and never waits for one."""

import math
import time
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.instrument.clock import Clock
from gpudash.instrument.timestamps import HostTimestamps
from gpudash.instrument.wire import FinishedStep
from gpudash.metrics import phases_ms
from gpudash.protocol.training import Phase
from tests.instrument.fake_device import Device

SERIAL = ("copy", "prepare", "forward", "backward", "optimizer", "idle")
SECOND = ("forward", "backward", "optimizer", "idle")
FIRST = ("copy", "prepare", "idle")
PHASES = (
    *(Phase(name=name, label=name, lane="prepare") for name in FIRST[:-1]),
    *(Phase(name=name, label=name, lane="train") for name in SECOND[:-1]),
)


def enqueue(
    clock: Clock[int],
    device: Device,
    marks: list[tuple[str, float]],
    step: int | None,
    host_ms: float = 1.0,
    data_ms: float = 0.0,
) -> None:
    """Enqueue an iteration; each mark has the device time in ms at which it is reached."""
    device.idle()
    mark = clock.begin()
    for phase, at_ms in marks:
        device.next_ms = at_ms
        mark(phase)
    device.next_ms = next(at_ms for phase, at_ms in marks if phase == "idle")  # of training
    device.host_s += host_ms / 1e3
    clock.end(step, samples=8, data_s=data_ms / 1e3)


def serial(begin_ms: float, *durations_ms: float) -> list[tuple[str, float]]:
    times = [begin_ms]
    for duration in durations_ms:
        times.append(times[-1] + duration)
    return list(zip(SERIAL, times, strict=True))


def finished(clock: Clock[int], device: Device, at_s: float) -> list[FinishedStep]:
    device.host_s = at_s
    return [step for step, _ in clock.finished()]


def plain(begin_ms: float, step_ms: float = 5.0) -> list[tuple[str, float]]:
    """Return the marks of a step whose phases take equally long."""
    return serial(begin_ms, *[step_ms / 5] * 5)


def first(at_ms: float, *later_ms: float) -> list[tuple[str, float]]:
    """Return the marks of a preparation, by default 1 and 2 ms later."""
    return list(zip(FIRST, (at_ms, *(later_ms or (at_ms + 1, at_ms + 2))), strict=True))


def second(*at_ms: float) -> list[tuple[str, float]]:
    """Return the marks of a training."""
    return list(zip(SECOND, at_ms, strict=True))


def test_what_is_called_at_each_mark_is_called_in_steps_that_are_not_measured_too(
    clock: Clock[int], device: Device
) -> None:
    called: list[str] = []
    for step in range(1, 5):
        enqueue(clock, device, serial(10.0 * step, 1, 2, 3, 4, 5), step)
        clock.at_marks = called.append
    assert called == [*SERIAL] * 3
    clock.at_marks = None
    enqueue(clock, device, serial(50, 1, 2, 3, 4, 5), 5)
    assert len(called) == 3 * len(SERIAL)


def test_what_is_called_with_new_names_is_called_where_the_phases_become_one_too(
    clock: Clock[int],
) -> None:
    renamed: list[str] = []
    clock.at_renames = renamed.append
    mark = clock.begin()
    mark("forward")
    mark("idle")
    clock.rename("forward")
    mark("idle")
    clock.rename("optimizer")
    assert renamed == ["forward", "optimizer"]


TWICE = ("copy", "prepare", "forward", "backward", "forward", "backward", "optimizer", "idle")
CUT = ("copy", "prepare", "forward", *["backward"] * 3, "optimizer", "idle")
HOOKED = ("hook", "copy", "prepare", "forward", "hook", "backward", "optimizer", "idle")


@pytest.mark.parametrize(
    ("names", "expected", "parts"),
    [
        (TWICE, {"forward": 3 + 5, "backward": 4 + 6}, {}),  # summed
        (CUT, {"forward": 3, "backward": 4 + 5 + 6}, {"backward": (4, 5, 6)}),
        (HOOKED, {"copy": 2, "forward": 4, "backward": 6}, {}),  # it names no phase
    ],
)
def test_phases_are_the_devices_own_times(
    clock: Clock[int], device: Device, names: tuple[str, ...], expected: dict, parts: dict
) -> None:
    enqueue(clock, device, list(zip(names, (0, 1, 3, 6, 10, 15, 21, 28), strict=True)), 1)
    (step,) = finished(clock, device, 101)
    assert phases_ms(step.values).items() >= expected.items()
    assert (step.parts_ms, step.values["device_ms"]) == (parts, 28 - (1 + 5) * (names is HOOKED))
    assert step.finished_s == pytest.approx(100.028)
    assert "cpu_ms" not in step.values


def test_a_phase_that_is_seen_to_be_the_one_before_goes_on_with_it(
    clock: Clock[int], device: Device
) -> None:
    mark = clock.begin()
    at_ms = {"idle": (1, 4, 8), "forward": (2,), "optimizer": (5,), "backward": (9,)}
    for device.next_ms, phase in sorted((at, name) for name in at_ms for at in at_ms[name]):
        mark(phase)
        if device.next_ms in (4, 8):
            clock.rename("forward")
    device.next_ms = 10
    clock.end(1)
    (step,) = finished(clock, device, 101)
    assert phases_ms(step.values) == {"optimizer": 3, "forward": 3 + 1, "backward": 1}
    assert step.parts_ms == {}


def test_a_step_with_an_unmeasured_half_has_no_device_time(device: Device) -> None:
    clock = Clock(device, PHASES, now=device.now, phases_every_s=math.inf)
    enqueue(clock, device, plain(0), 1)
    enqueue(clock, device, first(5, 6, 8), None)  # the last one measured
    enqueue(clock, device, second(10, 11, 12, 13), 2)
    _, step = finished(clock, device, 101)
    assert phases_ms(step.values) == {"copy": 1, "prepare": 2}
    assert step.values["overlap_ms"] == 0
    assert "device_ms" not in step.values


def test_a_step_counts_when_the_device_has_finished_it(clock: Clock[int], device: Device) -> None:
    enqueue(clock, device, plain(0), 1)
    enqueue(clock, device, plain(5), 2)
    device.passed_until = 9  # all of the first step, none of the second's end
    assert [step.step for step in finished(clock, device, 100.006)] == [1]
    assert clock.until_s == 100.006
    assert finished(clock, device, 100.007) == []
    device.passed_until = 100
    assert [step.step for step in finished(clock, device, 100.02)] == [2]


def test_a_look_without_result_counts_no_overhead(clock: Clock[int], device: Device) -> None:
    enqueue(clock, device, plain(0), 1)
    spent_s = clock.spent_s
    device.passed_until = 0
    assert finished(clock, device, 100.001) == []
    assert clock.spent_s == spent_s  # the host looks again and again while it has nothing to do
    device.passed_until = 100
    assert len(finished(clock, device, 100.02)) == 1
    assert clock.spent_s > spent_s


def test_two_streams_report_a_step_with_its_own_halves(clock: Clock[int], device: Device) -> None:
    enqueue(clock, device, first(0, 1, 4), None)
    enqueue(clock, device, [*second(4, 6, 8, 10), *first(5, 6, 9)], 1)
    enqueue(clock, device, [*second(10, 12, 14, 16), *first(8, 9, 12)], 2)
    enqueue(clock, device, second(16, 17, 18, 19), 3)  # drained
    one, two, three = finished(clock, device, 101)
    assert (one.values["copy_ms"], one.values["prepare_ms"]) == (1, 3)
    assert "overlap_ms" not in one.values  # nothing ran before
    assert (two.values["copy_ms"], two.values["prepare_ms"]) == (1, 3)
    assert two.values["overlap_ms"] == 4  # all of its preparation, beside the training of step 1
    assert two.values["device_ms"] == 1 + 3 + 6 - 4
    assert two.step_ms == 6
    assert three.values["overlap_ms"] == 12 - 10  # its preparation had begun before the training


def test_a_step_contains_the_wait_before_it(clock: Clock[int], device: Device) -> None:
    prepare, train = first(0), second(4, 5, 6, 7)
    enqueue(clock, device, prepare, None, host_ms=9, data_ms=7)
    enqueue(clock, device, [*train, *prepare], 1, host_ms=5, data_ms=2)
    enqueue(clock, device, train, 2, host_ms=1)  # drained
    enqueue(clock, device, plain(20), 3, host_ms=4, data_ms=3)
    steps = finished(clock, device, 101)
    waited = [step.values["data_ms"] for step in steps]
    assert waited == [7 + 2, 0, 3]  # step 1 waited for two batches
    busy = [step.values["host_ms"] for step in steps]
    assert busy == pytest.approx([3, 1, 1])  # of its turn, without


@pytest.mark.parametrize(
    ("pace", "begins_ms", "step_ms"),
    [(1.0, 100_001, 6), (0.99, 99_000, 5)],
    ids=["", "clocks that drift apart take nothing from it"],
)
def test_after_a_break_a_steps_time_begins_with_the_step(
    clock: Clock[int], device: Device, pace: float, begins_ms: float, step_ms: float
) -> None:
    device.pace = pace
    enqueue(clock, device, plain(0), 1)
    assert finished(clock, device, 100.005)[0].step_ms == pytest.approx(5)
    device.host_s = 200.0  # a long pause
    clock.interrupt()
    enqueue(clock, device, plain(begins_ms), 2)
    (step,) = finished(clock, device, 201)
    ended = (pytest.approx(step_ms), pytest.approx(200 + step_ms / 1e3))
    assert (step.step_ms, step.finished_s) == ended


def test_a_break_while_the_device_still_works_counts_no_time_twice(
    clock: Clock[int], device: Device
) -> None:
    enqueue(clock, device, plain(0, 500), 1)  # the host is far ahead
    clock.interrupt()
    enqueue(clock, device, plain(500, 50), 2)
    one, two = finished(clock, device, 101)
    assert one.step_ms + two.step_ms == pytest.approx(550)
    assert [one.finished_s, two.finished_s] == pytest.approx([100.5, 100.55])


def test_the_step_time_from_before_a_break_is_forgotten(clock: Clock[int], device: Device) -> None:
    for number in (1, 2):
        enqueue(clock, device, plain(5 * number), number)
    finished(clock, device, 100.02)
    assert clock.step_ms == 5
    enqueue(clock, device, plain(20), 3)
    clock.interrupt()
    enqueue(clock, device, plain(1000, 500), 4)
    assert [step.step for step in finished(clock, device, 102)] == [3, 4]
    assert clock.step_ms == math.inf  # the first step is not representative
    enqueue(clock, device, plain(2000, 500), 5)
    finished(clock, device, 104)
    assert clock.step_ms == 1000


def test_a_pause_between_the_halves_is_in_no_step(clock: Clock[int], device: Device) -> None:
    enqueue(clock, device, first(0), None)
    device.host_s = 150.0
    clock.interrupt()
    enqueue(clock, device, second(50_000, 50_001, 50_002, 50_003), 1)
    (step,) = finished(clock, device, 151)
    assert step.step_ms == pytest.approx(3)


def test_an_iteration_that_is_begun_again_without_a_break_keeps_its_begin(
    clock: Clock[int], device: Device
) -> None:
    enqueue(clock, device, plain(10), 1)
    clock.begin()
    device.host_s += 7e-3
    enqueue(clock, device, plain(30), 2, host_ms=2.0, data_ms=6.0)
    _, step = finished(clock, device, 101)
    assert step.values["host_ms"] == pytest.approx(7 + 2 - 6)


@given(st.lists(st.floats(0.1, 500), min_size=1, max_size=30), st.integers(1, 5))
def test_times_add_up_and_never_leave_what_causality_allows(
    steps_ms: list[float], look_every: int
) -> None:
    device = Device()
    clock = Clock(device, PHASES, now=device.now)
    seen: list[FinishedStep] = []
    at_ms = 0.0
    for number, step_ms in enumerate(steps_ms, 1):
        looked_s = clock.until_s
        enqueue(clock, device, plain(at_ms, step_ms), number, host_ms=0.0)
        at_ms += step_ms
        if number % look_every == 0:
            steps = finished(clock, device, 100 + at_ms / 1e3)
            assert all(looked_s <= step.finished_s or step in seen for step in steps[-1:])
            assert all(step.finished_s <= clock.until_s for step in steps)
            seen += steps
    seen += finished(clock, device, 100 + at_ms / 1e3)
    assert [step.step for step in seen] == list(range(1, len(steps_ms) + 1))
    assert sum(step.step_ms for step in seen) == pytest.approx(sum(steps_ms))


@pytest.mark.parametrize("pipelined", [False, True])
def test_phases_are_measured_sometimes_and_ends_always(device: Device, *, pipelined: bool) -> None:
    clock = Clock(device, PHASES, now=device.now, phases_every_s=0.1)
    if pipelined:
        enqueue(clock, device, first(0), None, host_ms=10)
    for number in range(1, 41):
        marks = plain(number * 10)
        if pipelined:
            marks = [*marks[2:], *first(number * 10 + 6)]
        enqueue(clock, device, marks, number, host_ms=10)
    steps = finished(clock, device, 101)
    assert [step.step for step in steps] == list(range(1, 41))
    assert all(step.step_ms == 10 for step in steps[1:])
    known = [step for step in steps if "device_ms" in step.values]
    measured = [phases_ms(step.values) for step in known]
    assert {step.values["device_ms"] for step in known} == {5}
    assert any(not phases_ms(step.values) for step in steps)
    assert len(measured) == (5 if pipelined else 10)
    assert all((took["prepare"], took["backward"]) == (1, 1) for took in measured)
    assert all(("overlap_ms" in step.values) == pipelined for step in known)
    assert device.recorded < 40 * 3  # of six or seven timestamps a step


@pytest.mark.parametrize("pipelined", [False, True])
def test_every_timestamp_is_reused(device: Device, *, pipelined: bool) -> None:
    clock = Clock(device, PHASES, now=device.now, phases_every_s=0.01)
    for number in range(1, 40):
        device.host_s = 100 + number * 0.005
        if number % 10 == 1:
            clock.interrupt()
        at_ms = number * 5.0
        marks = plain(at_ms)
        if pipelined:
            marks = [*marks[2:], *first(at_ms)]
        begins = pipelined and number == 1
        enqueue(clock, device, marks[-3:] if begins else marks, None if begins else number)
        finished(clock, device, device.host_s + 1)
    in_use = len(device.times_ms) - len(device.free)
    assert in_use == (8 if pipelined else 7)  # the newest iteration's marks and its end


def test_on_a_cpu_steps_have_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, cpu_s = 100.0, 7.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(time, "process_time", lambda: cpu_s)
    clock = Clock(HostTimestamps(), PHASES, now=lambda: now_s, phases_every_s=math.inf)
    steps = []
    for number, (wall_ms, used_ms) in enumerate([(10, 9), (5000, 8), (10, 20)], start=1):
        if number == 3:  # CPU time in a break belongs to no step
            clock.interrupt()
            now_s, cpu_s = now_s + 1, cpu_s + 1
        mark = clock.begin()
        for phase in SERIAL:
            mark(phase)
        now_s, cpu_s = now_s + wall_ms / 1e3, cpu_s + used_ms / 1e3
        clock.end(number, samples=8)
        steps += [step for step, _ in clock.finished()]
    assert [step.step_ms for step in steps] == pytest.approx([10, 5000, 10])
    assert [step.values["cpu_ms"] for step in steps] == pytest.approx([9, 8, 20])


def test_steps_that_are_only_counted_come_in_order_and_break_no_chain(
    clock: Clock[int], device: Device
) -> None:
    enqueue(clock, device, serial(10, 1, 2, 3, 4, 5), 1)
    clock.count(3, 2, 16, None)
    clock.interrupt()
    enqueue(clock, device, serial(40, 1, 2, 3, 4, 5), 4)
    device.passed_until = 1
    assert (finished(clock, device, 100.02), clock.counted()) == ([], [])
    device.passed_until = 10**9
    assert [step.step for step in finished(clock, device, 101)] == [1, 4]
    (counted,) = clock.counted()
    assert (counted.step, counted.count, counted.samples) == (3, 2, 16)
    assert counted.finished_s == pytest.approx(100.025)  # not before the one before
    assert clock.counted() == []


def test_a_first_step_from_before_the_clock_lasts_until_the_clock_was_made(
    clock: Clock[int], device: Device
) -> None:
    clock.end_first(device.host_s - 3, 8, 64, None, 0.5)
    enqueue(clock, device, serial(10, 1, 2, 3, 4, 5), 2)
    first, second = finished(clock, device, 101)
    assert (first.step, first.samples, first.tokens) == (1, 8, 64)
    assert (first.step_ms, first.values) == (pytest.approx(3000), {"data_ms": 500})
    assert second.step == 2


def test_marks_of_steps_that_are_timed_together_are_not_seen():
    clock = Clock(HostTimestamps(), PHASES, phases_every_s=0.0)
    clock.host = Mock()
    mark = clock.begin()
    mark("forward")
    mark("backward")
    clock.end(1)
    clock.begin()("forward")
    clock.end(5, count=4)
    told = clock.host.iterated.call_args_list
    assert [(one.args[2], one.kwargs["is_seen"]) for one in told] == [(1, True), (4, False)]
