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


def test_what_a_script_does_after_its_training_is_no_time_of_the_training():
    end = finished(15.0, trained_until_s=10.2)
    assert account(started(10), progress(step(10.1, 100, device_ms=100)), end) == having(
        wall_s=pytest.approx(0.2), unattributed_s=pytest.approx(0.1)
    )


def test_waiting_for_data_is_explained_as_far_as_the_device_was_idle():
    assert account(started(0), progress(step(0.1, 100, device_ms=100, data_ms=60))) == having(
        data_s=0
    )
    assert account(started(0), progress(step(0.1, 100, device_ms=40, data_ms=50))) == having(
        data_s=pytest.approx(0.05), unattributed_s=pytest.approx(0.01)
    )


def test_a_sleep_between_the_phases_shows_up_in_full():
    steps = [step(0.02 * (i + 1), 20, device_ms=15) for i in range(50)]  # 5 ms of each sleep
    assert account(started(0), progress(*steps)) == having(
        unattributed_s=pytest.approx(50 * 0.005), unattributed_share=pytest.approx(0.25)
    )


def test_the_shares_of_the_measured_steps_stand_for_the_others():
    steps = [step(0.01, 10, device_ms=8), step(0.02, 10), step(0.03, 10), step(0.04, 10)]
    assert account(started(0), progress(*steps)).unattributed_s == pytest.approx(4 * 0.002)


def test_time_without_the_cpu_is_unexplained_whether_or_not_the_step_was_measured():
    """A worker that is stopped for five seconds; phases were measured in the step before."""
    steps = [step(0.01, 10, device_ms=10, cpu_ms=10), step(5.02, 5010, data_ms=2, cpu_ms=8)]
    found = account(started(0), progress(*steps))
    assert (found.phases_s, found.data_s) == pytest.approx((0.018, 0.002))
    assert found.unattributed_s == pytest.approx(5.0)


def test_a_rank_that_waits_in_a_collective_needs_no_cpu_for_it():
    waits = step(0.05, 50, data_ms=5, cpu_ms=20, communication_ms=15.0)
    found = account(started(0), progress(waits))
    assert (found.phases_s, found.data_s) == pytest.approx((0.035, 0.005))
    assert found.unattributed_s == pytest.approx(0.010)


def test_steps_not_measured_yet_are_shared_out_like_the_newest_that_were():
    measured = progress(step(0.01, 10, device_ms=5, data_ms=3))
    found = account(started(0), measured, progress(step(0.02, 10)))
    assert (found.phases_s, found.data_s) == pytest.approx((0.010, 0.006))
    assert found.unattributed_s == pytest.approx(0.004)


def test_overlapping_time_of_two_steps_counts_once():
    """On two streams a step begins before the one ahead of it is finished."""
    steps = [step(1.0, 1000, cpu_ms=1000), step(1.5, 1000, data_ms=300, cpu_ms=900)]
    found = account(started(0), progress(*steps))
    assert found.wall_s == pytest.approx(1.5)
    assert (found.phases_s, found.data_s) == pytest.approx((1.2, 0.3))
    device = [step(1.0, 1000, device_ms=1000), step(1.5, 1000, data_ms=900, device_ms=600)]
    found = account(started(0), progress(device[0]), progress(device[1]))
    assert found.wall_s == pytest.approx(1.5)
    assert (found.phases_s, found.data_s) == pytest.approx((1.3, 0.2))


def test_a_wait_for_data_longer_than_what_is_left_of_its_step_counts_as_far_as_that():
    steps = [step(1.0, 1000, cpu_ms=1000), step(1.5, 1000, data_ms=800, cpu_ms=200)]
    found = account(started(0), progress(*steps))
    assert (found.phases_s, found.data_s, found.unattributed_s) == pytest.approx((1.0, 0.5, 0))


def test_a_step_that_is_finished_before_the_one_ahead_of_it_adds_no_time():
    steps = [step(1.0, 1000, cpu_ms=1000), step(0.9, 400, data_ms=100, cpu_ms=300)]
    assert account(started(0), progress(*steps)) == account(started(0), progress(steps[0]))


def test_a_block_without_instruments_was_training():
    timed = Timed(at_s=3, seconds=1.5, block=0, steps=10, samples=80)
    ends = [progress(step(1, 1000, device_ms=1000)), progress(step(4, 1000, device_ms=1000))]
    found = account(started(0), ends[0], timed, ends[1])
    assert (found.wall_s, found.phases_s) == pytest.approx((4, 3.5))
    assert found.unattributed_s == pytest.approx(0.5)


def test_a_pause_and_a_switch_are_known_for_what_they_are():
    found = account(
        started(0),
        progress(step(1, 1000, device_ms=1000)),
        paused(0.9),  # the device went on until 1.0
        resumed(3),
        changed(3.5, took_ms=400),
        progress(step(4.6, 1000, device_ms=1000)),
    )
    assert found.wall_s == pytest.approx(4.6)
    assert found.paused_s == pytest.approx(2.0)
    assert found.switching_s == pytest.approx(0.4)
    assert found.unattributed_s == pytest.approx(0.2)  # 3.0 to 3.1 and 3.5 to 3.6


def test_what_the_training_does_between_steps_by_itself_has_parts_of_its_own():
    found = account(
        started(0),
        progress(step(1, 1000, device_ms=1000)),
        paused(1, why="evaluation"),
        resumed(3),
        progress(step(4, 1000, device_ms=1000)),
        paused(4, why="checkpoint"),
        paused(4.5, why="asked"),
        resumed(8),
        progress(step(9, 1000, device_ms=1000)),
    )
    assert (found.evaluation_s, found.checkpoint_s) == pytest.approx((2.0, 0.5))
    assert (found.paused_s, found.unattributed_s) == pytest.approx((3.5, 0))
    assert parts(found) == pytest.approx(found.wall_s)


def test_a_restart_lasts_from_the_last_step_until_another_worker_is_ready():
    found = account(
        started(0),
        progress(step(1, 1000, device_ms=1000)),
        started(11),
        progress(step(12, 1000, device_ms=1000)),
    )
    assert (found.wall_s, found.restarting_s) == pytest.approx((12, 10))
    assert found.unattributed_s == pytest.approx(0)


@pytest.mark.parametrize("end", [finished(1, 1), failed(1.0, "gone"), stopped(1.0)])
def test_the_time_between_a_run_that_had_ended_and_the_next_is_not_counted(end):
    found = account(
        started(0),
        progress(step(1, 1000, device_ms=1000)),
        end,
        started(600),
        progress(step(601, 1000, device_ms=1000)),
    )
    assert (found.wall_s, found.restarting_s) == pytest.approx((2, 0))


@pytest.mark.parametrize("end", [failed(3.5, "gone"), stopped(3.5)])
def test_the_time_between_the_last_step_and_a_failure_or_an_interrupt_is_counted(end):
    """A dead loader worker is noticed seconds later, and an interrupted script may save."""
    found = account(started(0), progress(step(1, 1000, device_ms=1000)), end)
    assert (found.wall_s, found.unattributed_s) == pytest.approx((3.5, 2.5))


def test_a_run_that_ends_while_it_is_paused_was_paused_until_then():
    found = account(
        started(0),
        progress(step(1, 1000, device_ms=1000)),
        paused(1),
        finished(9, 1),
    )
    assert (found.wall_s, found.paused_s, found.unattributed_s) == pytest.approx((9, 8, 0))


def test_before_the_first_step_there_is_nothing_to_share_out():
    assert account(started(0)).unattributed_share is None


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


def test_what_came_before_a_recording_changes_nothing_in_it():
    """Long steps are measured more often than short ones, so their shares differ."""
    reconciliation, narrator, now = TimeAccount(), Narrator(), 0.0

    def tell(item: object) -> None:
        reconciliation.fold(narrator.tell(item))

    tell(started(now))
    for number in range(1000):  # short, half idle, one in ten measured
        now += 0.005
        device_ms = 2.5 if number % 10 == 0 else None
        reconciliation.fold(progress(step(now, 5, device_ms=device_ms)))
    before = reconciliation.account()
    for _ in range(10):
        now += 0.1
        reconciliation.fold(progress(step(now, 100, device_ms=100)))
    recorded = reconciliation.account().since(before)
    assert recorded.phases_s == pytest.approx(recorded.wall_s, rel=0.05)
    assert recorded.unattributed_s == pytest.approx(0, abs=0.05)


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
