"""Every second of wall time is attributed, or shown as unattributed."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.protocol.training import Aside, Progress, Step, Timed
from gpudash.views.time_breakdown import TimeAccount, TimeBreakdown
from tests.having import having
from tests.lives import Narrator, changed, failed, finished, paused, resumed, stopped
from tests.scripted_run import started


def step(
    finished_s: float,
    step_ms: float,
    *,
    device_ms=None,
    data_ms=0.0,
    cpu_ms=None,
    communication_ms=None,
    number=1,
) -> Step:
    values = {"data_ms": data_ms, "host_ms": step_ms, "device_ms": device_ms, "cpu_ms": cpu_ms}
    values["communication_ms"] = communication_ms
    return Step(
        step=number,
        segment=0,
        samples=8,
        finished_s=finished_s,
        step_ms=step_ms,
        values={name: ms for name, ms in values.items() if ms is not None},
    )


def progress(*steps: Step) -> Progress:
    until_s = steps[-1].finished_s if steps else 0.0
    return Progress(until_s=until_s, steps=steps, total_steps=len(steps), total_samples=0)


def account(*items: object) -> TimeBreakdown:
    reconciliation, narrator = TimeAccount(), Narrator()
    for item in items:
        reconciliation.fold(narrator.tell(item))
    return reconciliation.account()


def parts(found: TimeBreakdown) -> float:
    names = (name for name in found.__struct_fields__ if name != "wall_s")
    return sum(getattr(found, name) for name in names)


def second(finished_s: float) -> Progress:
    """A step of a second in which the device was busy."""
    return progress(step(finished_s, 1000, device_ms=1000))


@pytest.mark.parametrize(
    ("what", "items", "found"),
    [
        ("before the first step there is nothing to share out", [], {"unattributed_share": None}),
        ("a busy device is waited for by the data, and not the other way round",
         [progress(step(0.1, 100, device_ms=100, data_ms=60))], {"data_s": 0}),
        ("waiting for data is explained as far as the device was idle",
         [progress(step(0.1, 100, device_ms=40, data_ms=50))],
         {"data_s": 0.05, "unattributed_s": 0.01}),
        ("a sleep of 5 ms between the phases shows up in full",
         [progress(*(step(0.02 * (i + 1), 20, device_ms=15) for i in range(50)))],
         {"unattributed_s": 50 * 0.005, "unattributed_share": 0.25}),
        ("the shares of the measured steps stand for the others",
         [progress(step(0.01, 10, device_ms=8), *(step(end, 10) for end in (0.02, 0.03, 0.04)))],
         {"unattributed_s": 4 * 0.002}),
        ("steps not measured yet are shared out like the newest that were",
         [progress(step(0.01, 10, device_ms=5, data_ms=3)), progress(step(0.02, 10))],
         {"phases_s": 0.010, "data_s": 0.006, "unattributed_s": 0.004}),
        ("five seconds without the CPU are unexplained, though phases were measured before them",
         [progress(step(0.01, 10, device_ms=10, cpu_ms=10), step(5.02, 5010, data_ms=2, cpu_ms=8))],
         {"phases_s": 0.018, "data_s": 0.002, "unattributed_s": 5.0}),
        ("a rank that waits in a collective needs no CPU for it",
         [progress(step(0.05, 50, data_ms=5, cpu_ms=20, communication_ms=15.0))],
         {"phases_s": 0.035, "data_s": 0.005, "unattributed_s": 0.010}),
        ("on two streams, where a step begins before the one ahead ends, time counts once",
         [progress(step(1.0, 1000, cpu_ms=1000), step(1.5, 1000, data_ms=300, cpu_ms=900))],
         {"wall_s": 1.5, "phases_s": 1.2, "data_s": 0.3}),
        ("and so does the device's",
         [second(1), progress(step(1.5, 1000, data_ms=900, device_ms=600))],
         {"wall_s": 1.5, "phases_s": 1.3, "data_s": 0.2}),
        ("a wait for data longer than what is left of its step counts as far as that",
         [progress(step(1.0, 1000, cpu_ms=1000), step(1.5, 1000, data_ms=800, cpu_ms=200))],
         {"phases_s": 1.0, "data_s": 0.5, "unattributed_s": 0}),
        ("a block without instruments was training",
         [second(1), Timed(at_s=3, seconds=1.5, block=0, steps=10, samples=80), second(4)],
         {"wall_s": 4, "phases_s": 3.5, "unattributed_s": 0.5}),
        ("a pause, during which the device goes on until 1.0, and a switch are what they are",
         [second(1), paused(0.9), resumed(3), changed(3.5, took_ms=400), second(4.6)],
         {"wall_s": 4.6, "paused_s": 2.0, "switching_s": 0.4, "unattributed_s": 0.2}),
        ("what the training does between steps by itself has parts of its own",
         [second(1), paused(1, why="evaluation"), resumed(3), second(4),
          paused(4, why="checkpoint"), paused(4.5, why="asked"), resumed(8), second(9)],
         {"wall_s": 9, "evaluation_s": 2.0, "checkpoint_s": 0.5, "paused_s": 3.5,
          "unattributed_s": 0}),
        ("a restart lasts from the last step until another worker is ready",
         [second(1), started(11), second(12)],
         {"wall_s": 12, "restarting_s": 10, "unattributed_s": 0}),
        *[("the time between a run that had ended and the next is not counted",
           [second(1), end, started(600), second(601)], {"wall_s": 2, "restarting_s": 0})
          for end in (finished(1, 1), failed(1.0, "gone"), stopped(1.0))],
        ("what a script does after its training is no time of the training",
         [progress(step(0.1, 100, device_ms=100)), finished(5.0, trained_until_s=0.2)],
         {"wall_s": 0.2, "unattributed_s": 0.1}),
        ("a dead loader worker is noticed seconds later: they are counted",
         [second(1), failed(3.5, "gone")], {"wall_s": 3.5, "unattributed_s": 2.5}),
        ("an interrupted script may save: that is counted",
         [second(1), stopped(3.5)], {"wall_s": 3.5, "unattributed_s": 2.5}),
        ("a run that ends while it is paused was paused until then",
         [second(1), paused(1), finished(9, 1)],
         {"wall_s": 9, "paused_s": 8, "unattributed_s": 0}),
    ],
)  # fmt: skip
def test_where_the_time_has_gone(what: str, items: list[object], found: dict[str, float]):
    counted = account(started(0), *items)
    assert {name: getattr(counted, name) for name in found} == pytest.approx(found), what


def test_a_step_that_is_finished_before_the_one_ahead_of_it_adds_no_time():
    steps = [step(1.0, 1000, cpu_ms=1000), step(0.9, 400, data_ms=100, cpu_ms=300)]
    assert account(started(0), progress(*steps)) == account(started(0), progress(steps[0]))


anytime = st.floats(-1e6, 1e6)
unmeasured = st.none() | anytime
reports = st.lists(
    st.builds(step, anytime, anytime, device_ms=unmeasured, data_ms=anytime, cpu_ms=unmeasured),
    max_size=4,
).map(lambda steps: progress(*steps))
events = st.one_of(
    reports,
    st.builds(started, anytime),
    st.builds(changed, anytime, took_ms=anytime),
    st.builds(paused, anytime, why=st.sampled_from(get_args(Aside))),
    st.builds(resumed, anytime),
    st.builds(finished, anytime),
    st.builds(
        Timed, at_s=anytime, seconds=anytime, block=st.just(0), steps=st.just(1), samples=st.just(1)
    ),
)


@given(st.lists(events))
def test_whatever_comes_in_the_parts_add_up_and_none_is_negative(items: list[object]):
    found = account(started(0), *items)
    assert parts(found) == pytest.approx(found.wall_s)
    assert all(getattr(found, name) >= 0 for name in found.__struct_fields__)


def test_what_is_measured_in_a_recording_says_nothing_of_the_time_before_it():
    reconciliation = TimeAccount()
    reconciliation.fold(Narrator().tell(started(0)))
    reconciliation.fold(progress(step(10, 10_000)))  # not measured so far
    before = reconciliation.settled()
    reconciliation.fold(progress(step(11, 1000, device_ms=0, data_ms=1000)))
    found = reconciliation.account().since(before)
    assert (found.phases_s, found.data_s) == pytest.approx((0, 1))


def test_an_account_is_written_in_microseconds():
    assert TimeBreakdown(wall_s=1.23456789, phases_s=1.2345678).rounded() == having(
        wall_s=1.234568, phases_s=1.234568
    )
