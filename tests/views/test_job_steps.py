"""The samples of a step are those of all ranks."""

import msgspec

from gpudash.protocol import (
    Device,
    Envelope,
    Notice,
    Parted,
    Plan,
    Progress,
    Restarted,
    Started,
    Step,
)
from gpudash.views.job_steps import JobSteps


def started(rank=0, world_size=1):
    body = Started(
        at_s=0.0,
        segment=0,
        pid=1,
        workload="train.py",
        device=Device(kind="cpu", name="CPU"),
        settings={},
        warmup_steps=0,
        versions={},
        notes=(),
        world_size=world_size,
    )
    return Envelope(source="training", rank=rank, seq=0, sent_s=0.0, body=body)


def trained(rank=0, samples=32, count=1, total_samples=320):
    step = Step(
        step=10, segment=0, samples=samples, tokens=None, finished_s=1.0, step_ms=9.0, count=count
    )
    body = Progress(until_s=1.0, steps=(step,), total_steps=10, total_samples=total_samples)
    return Envelope(source="training", rank=rank, seq=1, sent_s=1.0, body=body)


def of_job(*envelopes, own):
    steps = JobSteps()
    for envelope in (*envelopes, own):
        steps.take(envelope)
    return steps.of_job(own.body)


def test_of_a_single_process_nothing_changes():
    own = trained()
    assert of_job(started(), own=own) is own.body


def test_a_step_of_the_job_has_the_samples_of_all_ranks():
    told = of_job(
        *(started(rank, 2) for rank in (0, 1)),
        trained(1, samples=96, total_samples=960),
        own=trained(),
    )
    assert told.steps[0].samples == 32 + 96
    assert told.total_samples == 320 + 960


def test_a_rank_that_is_not_heard_of_yet_counts_as_rank_0_does():
    told = of_job(started(0, 4), trained(2, samples=96), own=trained())
    assert told.steps[0].samples == 3 * 32 + 96


def test_steps_that_are_told_together_count_each():
    told = of_job(started(0, 2), trained(1, samples=96), own=trained(samples=320, count=10))
    assert told.steps[0].samples == 320 + 960


def test_what_another_rank_has_trained_so_far_is_counted_where_it_does_not_say():
    rows = [trained(1, samples=96, total_samples=None)] * 3
    told = of_job(*(started(rank, 2) for rank in (0, 1)), *rows, own=trained())
    assert told.total_samples == 320 + 3 * 96


def test_where_a_rank_does_not_know_its_samples_the_job_does_not():
    told = of_job(started(0, 2), trained(1, samples=None, total_samples=None), own=trained())
    assert told.steps[0].samples is None
    assert told.total_samples is None


def test_a_rank_that_is_gone_since_a_restart_with_fewer_no_longer_counts():
    told = of_job(started(0, 3), trained(2), started(0, 2), own=trained())
    assert told.steps[0].samples == 2 * 32


def test_of_processes_that_train_alone_side_by_side_one_may_begin_again():
    told = of_job(started(0), started(1), trained(1, samples=96), started(0), own=trained())
    assert told.steps[0].samples == 32 + 96
    assert told.total_samples == 320 + 320


def test_a_process_that_has_ended_trains_no_further_samples_and_has_trained_its_own():
    parted = Envelope(source="training", rank=1, seq=2, sent_s=1.0, body=Parted(at_s=1.0, pid=1))
    told = of_job(started(0), started(1), trained(1, samples=96), parted, own=trained())
    assert told.steps[0].samples == 32
    assert told.total_samples == 320 + 320


def test_after_a_restart_nothing_is_known_of_the_ranks_before():
    again = Restarted(at_s=1.0, plan=Plan(workload="", settings={}))
    restarted = Envelope(source="session", seq=0, sent_s=1.0, body=again)
    own = trained()
    assert of_job(started(0, 2), trained(1), restarted, started(0), own=own) is own.body


def test_what_is_no_step_stays_as_it_is():
    steps = JobSteps()
    steps.take(started(0, 2))
    notice = Notice(text="hello")
    assert steps.of_job(notice) is notice
    reading = msgspec.structs.replace(started(0, 2).body, world_size=2)
    assert steps.of_job(reading) is reading
