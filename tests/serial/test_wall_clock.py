"""The loop's clock against an outside one: what a workload did, where, and how often it stepped.

On a CPU the device is at work while the process has CPU time: phases take CPU time here, and what
a busy machine takes from them is told like a sleep. Everything is compared as a ratio.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from gpudash.protocol.commands import Block, Blocks, Change, Pause, Resume
from gpudash.protocol.envelope import Event
from gpudash.protocol.training import Progress, Timed
from gpudash.ranks.normalise import Normaliser
from gpudash.views.time_breakdown import TimeAccount, TimeBreakdown
from tests.scripted_run import started
from tests.worker.in_process import FakeEntry, Run
from workloads.levers import Value

STEPS = 150
PHASE_S, OUTSIDE_S = 0.004, 0.002


@dataclass
class Stopwatch:
    """What the workload itself sees: CPU time of its phases, its sleeps, and when steps ended."""

    within_s: float = 0.0
    outside_s: float = 0.0
    ends_s: list[float] = field(default_factory=list)

    def within(self, _values: Mapping[str, Value]) -> None:
        """Work in a phase."""
        began_s = time.process_time()
        while time.process_time() < began_s + PHASE_S:
            pass
        self.within_s += time.process_time() - began_s

    def end(self, _values: Mapping[str, Value]) -> None:
        """Note the end of a step."""
        self.ends_s.append(time.monotonic())

    def end_and_sleep(self, values: Mapping[str, Value]) -> None:
        """Note the end of a step, and sleep outside every phase."""
        self.end(values)
        time.sleep(OUTSIDE_S)
        self.outside_s += time.monotonic() - self.ends_s[-1]


def account(run: Run, began_s: float) -> TimeBreakdown:
    reconciliation = TimeAccount()
    stamp = Normaliser().stamp
    for event in [started(began_s), *run.events]:
        reconciliation.fold(stamp(event))
    return reconciliation.account()


def explained_beside(watch: Stopwatch, found: TimeBreakdown) -> bool:
    """Tell whether a tenth at most is unattributed beside what other processes took."""
    others_s = found.wall_s - watch.within_s - found.paused_s - found.switching_s
    return found.unattributed_s <= others_s + 0.1 * found.wall_s


def watched() -> tuple[Stopwatch, FakeEntry]:
    """Return a stopwatch, and a workload that stays within its phases."""
    watch = Stopwatch()
    return watch, FakeEntry(during={"forward": watch.within, "idle": watch.end})


def stop_after_many_steps(run: Run, _event: Event) -> None:
    if run.training.trained_steps >= STEPS:
        run.stop()


def test_a_sleep_outside_every_phase_is_unexplained_in_full():
    watch = Stopwatch()
    entry = FakeEntry(during={"forward": watch.within, "idle": watch.end_and_sleep})
    began_s = time.monotonic()
    run = Run(entry, stop_after_many_steps).until_stopped()
    found = account(run, began_s)
    assert found.wall_s == pytest.approx(watch.ends_s[-1] - began_s, rel=0.02)
    assert found.unattributed_s == pytest.approx(found.wall_s - watch.within_s, rel=0.3)
    assert found.unattributed_s > 0.9 * watch.outside_s
    assert found.phases_s == pytest.approx(watch.within_s, rel=0.2)
    assert (found.paused_s, found.switching_s) == (0, 0)


def test_pauses_and_switches_are_neither_phases_nor_unexplained():
    watch = Stopwatch()
    entry = FakeEntry(
        during={"forward": watch.within, "idle": watch.end}, building=lambda _: time.sleep(0.1)
    )
    script = [Pause(id=2), Resume(id=3), Change(id=1, settings={"batch_size": "3"})]

    def react(run: Run, event: Event) -> None:
        paused, resumed = run.of("paused"), run.of("resumed")
        waited = paused and event is run.of(Progress)[-1] and event.until_s > paused[0].at_s + 0.3
        due = {3: bool(run.steps), 2: waited, 1: bool(resumed)}.get(len(script), False)
        if due:
            run.send(script.pop(0))
        if run.of("changed") and run.steps[-1].segment == 1:
            run.stop()

    run = Run(entry, react)
    began_s = time.monotonic()
    found = account(run.until_stopped(), began_s)
    (paused,), (resumed,), (changed,) = run.of("paused"), run.of("resumed"), run.of("changed")
    assert found.paused_s == pytest.approx(resumed.at_s - paused.at_s, rel=0.05)
    assert found.switching_s == pytest.approx(changed.took_ms / 1e3, rel=0.05)
    assert found.switching_s >= 0.1
    assert explained_beside(watch, found)


def moved(number: int) -> Block:
    """Return a block: pipelined, another batch size, or as it was."""
    changes = ({"pipelined": "on"}, {"batch_size": "3"}, {})[number % 3]
    return Block(number=number, changes=changes, min_steps=5, min_s=0.0)


@pytest.mark.parametrize("switching", [False, True])
def test_steps_agree_with_an_outside_stopwatch_and_phases_leave_little_unexplained(
    *, switching: bool
):
    watch, entry = watched()
    began_s = time.monotonic()
    run = Run(entry, stop_after_many_steps)
    blocks = tuple(moved(number) for number in range(200))
    run.until_stopped(*([Blocks(id=4, run=1, blocks=blocks)] if switching else []))
    assert len(run.of("changed")) > 10 if switching else not run.of("changed")
    steps = run.steps
    assert len(steps) == len(watch.ends_s) >= STEPS  # none lost, none invented
    ours = (len(steps) - 1) / (steps[-1].finished_s - steps[0].finished_s)
    theirs = (len(watch.ends_s) - 1) / (watch.ends_s[-1] - watch.ends_s[0])
    assert ours == pytest.approx(theirs, rel=0.02)
    assert explained_beside(watch, account(run, began_s))


def test_what_is_trained_without_instruments_is_not_unexplained():
    watch, entry = watched()
    blocks = tuple(
        Block(number=number, changes={}, min_steps=14, min_s=0.0, wall_clock=wall_clock)
        for number, wall_clock in enumerate(["uninstrumented", "instrumented"] * 4)
    )
    began_s = time.monotonic()
    run = Run(entry, stop_after_many_steps).until_stopped(Blocks(id=4, run=1, blocks=blocks))
    found = account(run, began_s)
    assert sum(timed.seconds for timed in run.of(Timed)) > 0.3 * found.wall_s
    assert explained_beside(watch, found)
