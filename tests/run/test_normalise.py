"""Views receive every message once, with segments of the whole run."""

import pytest
from msgspec.structs import replace

from gpudash.protocol import Envelope, Plan, Progress
from gpudash.run.normalise import Normaliser
from tests.lives import paused, starting
from tests.scripted_run import SETTINGS, started, step


def report(*steps):
    return Progress(until_s=0.0, steps=steps, total_steps=0, total_samples=0)


def changed(segment, after_step):
    return Changed(
        at_s=0.0,
        segment=segment,
        after_step=after_step,
        changes={},
        settings=SETTINGS,
        took_ms=1.0,
        warmup_steps=2,
    )


def stamped(*bodies):
    normaliser = Normaliser()
    return [normaliser.stamp(body) for body in bodies]


def steps_of(bodies):
    return [one for body in bodies if isinstance(body, Progress) for one in body.steps]


def test_segments_count_on_over_several_workers():
    items = stamped(
        started(0.0),
        changed(1, 0),
        changed(2, 0),
        started(9.0),
        report(step(1, 1.0)),
        changed(1, 1),
        report(step(2, 2.0, segment=1)),
    )
    assert [body.segment for body in items if isinstance(body, Started | Changed)] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert [one.segment for one in steps_of(items)] == [3, 4]


def test_the_first_start_of_a_log_begun_in_mid_run_names_its_segment_in_the_run():
    items = stamped(replace(started(0.0), segment=3), changed(1, 0), started(9.0))
    assert [body.segment for body in items] == [3, 4, 5]


@pytest.mark.parametrize("pause", [paused(0.0, after_step=3), changed(0, 3)])
def test_a_step_knows_how_long_ago_the_last_break_was_also_one_reported_late(pause):
    items = stamped(
        started(0.0),
        report(step(1, 1.0)),
        pause,
        report(step(2, 2.0), step(3, 3.0), step(4, 4.0)),
        report(step(5, 5.0)),
        started(9.0),
        report(step(1, 10.0)),
    )
    assert [one.since_break for one in steps_of(items)] == [1, 2, 3, 1, 2, 1]


@pytest.mark.parametrize("why", ["evaluation", "checkpoint"])
def test_an_aside_is_no_break(why):
    pause = paused(1.0, after_step=1, why=why)
    items = stamped(started(0.0), report(step(1, 1.0)), pause, report(step(2, 5.0)))
    assert [one.since_break for one in steps_of(items)] == [1, 2]


def test_repeats_are_dropped_and_another_worker_counts_from_0():
    normaliser = Normaliser()
    first = Envelope(source="training", seq=0, sent_s=0.0, body=started(0.0))
    later = replace(first, seq=4, body=report())
    assert normaliser.take(first) is not None
    assert normaliser.take(later) is not None
    assert normaliser.take(later) is None
    assert normaliser.take(replace(later, seq=2)) is None
    assert normaliser.take(replace(later, seq=2, source="telemetry")) is not None
    assert normaliser.take(replace(later, seq=5, rank=1)) is None
    assert normaliser.take(replace(later, seq=5)) is not None
    plan = Plan(workload="encdec", settings={})
    normaliser.stamp(starting(0.0, plan))
    assert normaliser.take(first) is not None
