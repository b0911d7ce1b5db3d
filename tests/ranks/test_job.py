"""The samples and the tokens of a job are those of all ranks; of all else, it has rank 0's."""

from itertools import count

import pytest

from gpudash.protocol.commands import Plan
from gpudash.protocol.training import Device, Progress, State, Step, TrainingProcess
from gpudash.ranks.job import Ranks
from tests.lives import parted, said, stamped, starting

READY_S = count()


def started(rank=0, world_size=1):
    device = Device(kind="cpu", name="CPU")
    ready_s = float(next(READY_S))  # each is another process
    process = TrainingProcess(
        pid=1, ready_s=ready_s, device=device, versions={}, world_size=world_size
    )
    body = State(at_s=0.0, phase="training", process=process, workload="train.py")
    return said(body, rank)


def trained(rank=0, samples=32, count=1, total_samples=320, tokens=None):
    step = Step(
        step=10, segment=0, samples=samples, tokens=tokens, finished_s=1.0, step_ms=9.0, count=count
    )
    body = Progress(until_s=1.0, steps=(step,), total_steps=10, total_samples=total_samples)
    return said(body, rank, 1)


def of_job(*envelopes, own):
    ranks = Ranks()
    for envelope in stamped((*envelopes, own)):
        ranks.take(envelope)
    return ranks.of_all(own.body)


def test_a_single_process_is_unchanged_and_before_a_start_it_is_alone():
    own = trained()
    assert of_job(started(), own=own) is of_job(own=own) is own.body


def of_three():
    """Messages of three ranks, of which the last one trains on more."""
    return [*(started(rank, 3) for rank in range(3)), trained(2, samples=96)]


OF_ALL = {
    # what is told; rank 0's own report; samples and tokens of a step, all samples
    "steps reported together count each": (
        [started(0, 2), trained(1, samples=96)],
        trained(samples=320, count=10),
        (320 + 960, None, 2 * 320),
    ),
    "those of another rank too": (
        [started(0, 2), trained(1, samples=960, count=10, tokens=5000)],
        trained(tokens=400),
        (32 + 96, 400 + 500, 2 * 320),
    ),
    "samples are unknown if those of a rank are": (
        [started(0, 2), trained(1, samples=None, total_samples=None)],
        trained(),
        (None, None, None),
    ),
    "a rank that is gone since a restart with fewer counts no longer": (
        [started(0, 3), trained(2), started(0, 2)],
        trained(),
        (2 * 32, None, 2 * 320),
    ),
    "nor does one that trained on more": (
        [*of_three(), started(0, 2)],
        trained(),
        (2 * 32, None, 2 * 320),
    ),
    "another one that begins after such a restart counts": (
        [*of_three(), said(parted(1.0), 2, 2), started(0, 2), trained(1, samples=96)],
        trained(),
        (32 + 96, None, 2 * 320),
    ),
    "one that goes on by itself counts": (
        [started(0, 2), started(1, 2), trained(1, samples=96), started(0, 1)],
        trained(),
        (32 + 96, None, 2 * 320),
    ),
    "one that trains alone beside others may restart": (
        [started(0), started(1), trained(1, samples=96), started(0)],
        trained(),
        (32 + 96, None, 320 + 320),
    ),
    "one that has ended trains no further samples, and has trained its own": (
        [started(0), started(1), trained(1, samples=96), said(parted(1.0), 1, 2)],
        trained(),
        (32, None, 320 + 320),
    ),
}


@pytest.mark.parametrize(("told", "own", "expected"), OF_ALL.values(), ids=OF_ALL)
def test_a_job_has_the_samples_and_tokens_of_all_ranks(told, own, expected):
    item = of_job(*told, own=own)
    assert (item.steps[0].samples, item.steps[0].tokens, item.total_samples) == expected


def test_after_a_restart_nothing_is_known_of_the_ranks_before():
    restarted = said(starting(1.0, Plan(workload="", settings={})), source="session")
    own = trained()
    assert of_job(started(0, 2), trained(1), restarted, started(0), own=own) is own.body


def test_the_jobs_rate_has_the_samples_and_tokens_of_all_ranks_and_rank_0s_steps():
    ranks = Ranks()
    own = trained(0, samples=5 * 8, tokens=5 * 100, count=5)
    other = trained(1, samples=5 * 24, tokens=5 * 50, count=5)
    told = [started(0, 3), started(1, 3), own, other]
    for envelope in stamped(told):
        ranks.take(envelope)
    rate = ranks.rate(1.0, rests=False)
    own = ranks.lead.rate(1.0, rests=False)
    assert rate.samples_per_s == pytest.approx((2 * 8 + 24) * own.steps_per_s)
    assert rate.tokens_per_s == pytest.approx((2 * 100 + 50) * own.steps_per_s)
    assert (rate.steps_per_s, rate.step_ms_p50) == (own.steps_per_s, own.step_ms_p50)
    assert ranks.rate(1.0, rests=True).samples_per_s == 0.0
