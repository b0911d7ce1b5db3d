"""Views receive every message once, in terms of the whole run."""

import pytest
from msgspec.structs import replace

from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Progress, State
from gpudash.ranks.normalise import Normaliser
from gpudash.statistics import WARMUP_STEPS
from tests.lives import Narrator, changed, failed, in_process, paused, resumed, starting
from tests.scripted_run import PLAN, started, step


def report(*steps):
    return Progress(until_s=0.0, steps=steps, total_steps=0, total_samples=0)


def told(*items):
    narrator = Narrator()
    return [narrator.tell(item) for item in items]


def states_of(bodies):
    return [body for body in bodies if isinstance(body, State)]


def steps_of(bodies):
    return [one for body in bodies if isinstance(body, Progress) for one in body.steps]


def test_workers_and_segments_count_on_over_several_workers():
    items = told(
        started(0.0),
        changed(1.0),
        changed(2.0),
        started(9.0),
        report(step(1, 1.0)),
        changed(10.0, after_step=1),
        report(step(2, 2.0, segment=1)),
    )
    assert [state.segment for state in states_of(items)] == [0, 1, 2, 3, 4]
    assert [state.worker for state in states_of(items)] == [1, 1, 1, 2, 2]
    assert [one.segment for one in steps_of(items)] == [3, 4]


def test_a_training_whose_levers_were_changed_before_it_was_watched_begins_with_segment_0():
    items = told(replace(started(0.0), segment=3), report(step(9, 1.0, segment=3)))
    assert (items[0].segment, items[1].steps[0].segment) == (0, 0)


def test_a_message_of_a_log_stays_as_it_is_but_what_comes_first_is_a_start():
    first = told(started(0.0), changed(1.0), started(9.0), changed(10.0), paused(12.0))
    late = first[-1]
    read = told(late, report(step(9, 13.0, segment=late.segment)), starting(20.0, PLAN))
    begins_late = replace(late, turns=("starts", "pauses"))
    assert (read[0], read[1].steps[0].segment) == (begins_late, late.segment)
    assert told(*first, late)[-1] == replace(late, turns=())


def test_a_state_says_what_has_just_happened():
    again = in_process(started(9.0), pid=43)
    items = told(
        started(0.0),
        changed(1.0),
        changed(2.0, run=1, block=0),
        changed(3.0, run=None, block=None),
        paused(4.0, "evaluation"),
        paused(5.0),
        paused(6.0),
        resumed(7.0),
        again,
        paused(10.0),
        failed(11.0),
        failed(12.0),
    )
    assert [state.turns for state in items] == [
        ("starts",),
        ("changes",),
        ("changes", "blocks"),
        ("changes", "blocks"),
        ("pauses",),
        ("pauses",),
        (),
        (),
        ("starts", "replaces"),
        ("pauses",),
        ("fails",),
        (),
    ]
    stood = {state.at_s: state.stood for state in items if state.stood is not None}
    assert stood == {5.0: ("evaluation", 4.0), 7.0: ("asked", 5.0), 11.0: ("asked", 10.0)}


def test_other_loader_workers_are_no_turn_of_a_life():
    first = told(started(0.0), paused(4.0, "evaluation"))
    late = replace(first[-1], loader_pids=(7,))
    assert told(*first, late)[-1] == replace(late, turns=())


def test_a_phase_is_as_old_as_its_first_state():
    items = told(
        started(1.0),
        changed(2.0),
        paused(3.0),
        changed(4.0),
        resumed(5.0),
        paused(6.0, "evaluation"),
        paused(7.0),
    )
    assert [state.since_s for state in items] == [1.0, 1.0, 3.0, 3.0, 5.0, 6.0, 7.0]


def test_an_end_is_completed_from_the_state_before():
    normaliser = Normaliser()
    before = normaliser.stamp(replace(started(1.0), settings={"batch_size": "2"}))
    end = normaliser.stamp(failed(7.0))
    assert (end.phase, end.at_s, end.failure.sentence) == ("failed", 7.0, "it died")
    assert (end.process, end.settings, end.worker) == (before.process, before.settings, 1)
    after = normaliser.stamp(State(at_s=9.0, phase="stopped"))
    assert (after.phase, after.since_s, after.failure) == ("stopped", 7.0, end.failure)


BREAKS = [paused(0.5, after_step=3), changed(0.5, after_step=3)]


@pytest.mark.parametrize("a_break", BREAKS)
def test_a_step_knows_how_long_ago_the_last_break_was_also_one_reported_late(a_break):
    items = told(
        started(0.0),
        report(step(1, 1.0)),
        a_break,
        report(step(2, 2.0), step(3, 3.0), step(4, 4.0)),
        report(step(5, 5.0)),
        started(9.0),
        report(step(1, 10.0)),
    )
    assert [one.since_break for one in steps_of(items)] == [1, 2, 3, 1, 2, 1]


@pytest.mark.parametrize("a_break", BREAKS)
def test_steps_are_warm_some_steps_after_a_break(a_break):
    before = [step(number, 1.0) for number in (1, 2, 3)]
    after = [step(number, 2.0) for number in range(4, 4 + WARMUP_STEPS + 2)]
    items = told(started(0.0), report(*before), a_break, report(*after))
    assert [one.warm for one in steps_of(items)] == [0] * (3 + WARMUP_STEPS) + [1, 1]


def test_of_equal_steps_those_after_the_warm_up_are_warm_and_a_block_has_its_own():
    long = replace(started(0.0), warmup_steps=20)
    items = told(long, report(replace(step(15, 1.0), count=15), replace(step(30, 2.0), count=15)))
    assert [one.warm for one in steps_of(items)] == [0, 10]
    block = changed(1.0, after_step=0, warmup_steps=1, run=1, block=0)
    items = told(started(0.0), block, report(step(1, 2.0), step(2, 3.0)))
    assert [one.warm for one in steps_of(items)] == [0, 1]


@pytest.mark.parametrize("why", ["evaluation", "checkpoint", "profile"])
def test_an_aside_is_no_break(why):
    aside = paused(1.0, why, after_step=1)
    items = told(started(0.0), report(step(1, 1.0)), aside, resumed(4.0), report(step(2, 5.0)))
    assert [one.since_break for one in steps_of(items)] == [1, 2]


@pytest.mark.parametrize("aside", [[paused(1.0, "profile", after_step=8)], []])
def test_batches_that_loaders_make_while_a_training_stands_still_are_no_break_and_not_warm(aside):
    late = resumed(2.0, after_step=9, warmup_steps=WARMUP_STEPS + 2)
    after = [step(number, 3.0) for number in range(10, 19)]
    items = told(started(0.0), report(step(8, 1.0)), *aside, late, report(*after))
    warm = [1] + [0] * (WARMUP_STEPS + 2) + [1, 1]
    assert [one.warm for one in steps_of(items)] == warm
    assert [one.since_break for one in steps_of(items)] == [8, *range(10, 19)]


def test_repeats_are_dropped_and_another_worker_counts_from_0():
    normaliser = Normaliser()
    first = Envelope(source="training", seq=0, sent_s=0.0, body=started(0.0))
    later = replace(first, seq=4, body=report())
    earlier = replace(later, seq=2)
    elsewhere = replace(earlier, source="telemetry"), replace(earlier, rank=1)
    taken = [first, later, later, earlier, *elsewhere, replace(later, seq=5)]
    dropped = [normaliser.take(one) is None for one in taken]
    assert dropped == [False, False, True, True, False, False, False]
    normaliser.stamp(starting(0.0, Plan(workload="encdec", settings={})))
    assert normaliser.take(first) is not None


def test_the_same_process_reached_again_is_another_worker():
    again = in_process(started(0.0), ready_s=5.0)
    assert [state.worker for state in told(started(0.0), again)] == [1, 2]
