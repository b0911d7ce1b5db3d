from collections import deque
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudash.compare.blocks import LAG_S, SAMPLES_KEPT, BlockLog, MeasuredBlock, NotRun
from gpudash.protocol.commands import Block, Blocks, Change
from gpudash.protocol.training import BlocksEnded, Progress, Refused, State, Timed
from gpudash.ranks.normalise import Normaliser
from tests.having import having
from tests.lives import Narrator, changed, failed, finished, paused, resumed
from tests.scripted_run import BEGAN_S, gpu, host, started, step
from tests.scripted_worker import WARMUP, Worker

OFF, ON = {"pipelined": "off"}, {"pipelined": "on"}


RUN = 3


def blocks_of(*numbers, min_steps=2, wall_clock=None):
    return [
        Block(
            number=number,
            changes=ON if number % 2 else OFF,
            min_steps=min_steps,
            min_s=0.0,
            wall_clock=wall_clock,
        )
        for number in numbers
    ]


def refused(block, reason, kind="bad_setting"):
    return Refused(kind=kind, changes=OFF, reason=reason, run=RUN, block=block)


class Bench:
    """A log, and the worker's records written by hand."""

    def __init__(self, *numbers, **length):
        self.log = BlockLog(
            RUN, blocks_of(*numbers, **length), Narrator().tell(started(BEGAN_S - 1))
        )
        self.narrator = Narrator()
        self.narrator.tell(started(BEGAN_S - 1))
        self.now_s = BEGAN_S
        self.step = 0
        self.outcomes = []

    def fold_all(self, *records):
        for record in map(self.narrator.tell, records):
            self.outcomes += self.log.fold(record)

    def changed(self, block, after_step, warmup_steps=WARMUP, run=RUN):
        about = {"after_step": after_step, "warmup_steps": warmup_steps, "run": run, "block": block}
        self.fold_all(changed(self.now_s, settings=ON, **about))

    def entered(self, warmup_steps=WARMUP):
        """The first block begins before the first step."""
        self.changed(block=0, after_step=0, warmup_steps=warmup_steps)
        return self

    def left(self, after_step):
        """No block runs any more, which a step shows."""
        self.changed(block=None, after_step=after_step)
        self.finished(50.0)

    def ended(self, why="no block is left"):
        self.fold_all(BlocksEnded(at_s=self.now_s, run=RUN, why=why))

    def finished(self, *times_ms, segment=None):
        """Report steps that the device has finished."""
        steps = []
        for step_ms in times_ms:
            self.now_s += step_ms / 1e3
            self.step += 1
            of = self.narrator.segment if segment is None else segment
            steps.append(step(self.step, self.now_s, step_ms, of))
        self.fold_all(
            Progress(until_s=self.now_s, steps=tuple(steps), total_steps=self.step, total_samples=0)
        )


def test_a_block_is_the_sum_of_its_steps_without_its_warm_up_and_the_last():
    bench = Bench(5)
    bench.finished(70.0)
    bench.changed(block=5, after_step=1)
    bench.finished(900.0, 800.0, 50.0, 40.0, 1.0)
    bench.left(after_step=6)
    (block,) = bench.outcomes
    assert block == having(
        number=5,
        steps=2,
        samples=16,
        busy_s=pytest.approx(0.090),
        ms_per_sample=pytest.approx(90.0 / 16),
    )
    assert block.of("host_ms") == 2.0


def test_a_change_from_before_the_first_block_ends_nothing():
    bench = Bench(0)
    bench.changed(block=None, after_step=0, run=None)
    bench.finished(*[900.0] * 30)
    assert bench.log.over is None


def test_a_run_that_ends_before_its_first_block_is_over():
    bench = Bench(0)
    bench.ended("another change ended it")
    bench.finished(50.0)
    assert bench.log.over == "another change ended it"


def test_blocks_of_an_earlier_experiment_are_not_its_own():
    bench = Bench(10, 11)
    bench.changed(block=10, after_step=0, run=RUN - 1)
    bench.finished(900.0, 900.0, 50.0, 50.0, 50.0)
    bench.fold_all(msgspec.structs.replace(refused(11, "too late"), run=RUN - 1))
    bench.changed(block=None, after_step=5, run=RUN - 1)
    bench.fold_all(BlocksEnded(at_s=bench.now_s, run=RUN - 1, why="other blocks began"))
    bench.finished(50.0)
    assert bench.outcomes == []
    assert bench.log.over is None


@pytest.mark.parametrize(
    "end",
    [
        finished(BEGAN_S, 9),
        failed(1.0, "it broke"),
        started(BEGAN_S),  # another worker
    ],
    ids=["finished", "failed", "restarted"],
)
def test_it_is_over_when_the_training_ends(end):
    bench = Bench(0).entered()
    bench.fold_all(end)
    assert bench.log.over == "the training ended"


def test_a_block_too_short_for_a_reading_has_no_utilisation():
    bench = Bench(0).entered(warmup_steps=0)
    bench.fold_all(gpu(BEGAN_S + 0.05, gpu_util_pct=80.0), host(BEGAN_S + 0.05))
    bench.finished(50.0, 50.0, 50.0)
    bench.left(after_step=3)
    assert (bench.outcomes[0].of("gpu_util_pct"), bench.outcomes[0].of("cpu_pct")) == (None, None)


def test_readings_from_the_lag_after_a_blocks_begin_to_its_last_step_are_its_own():
    bench = Bench(0).entered(warmup_steps=0)
    began_s = bench.now_s + LAG_S
    bench.finished(250.0, 500.0, 125.0)
    for at_s, percent in [
        (began_s - 0.01, 90.0),
        (began_s, 10.0),
        (bench.now_s, 30.0),
        (bench.now_s + 0.01, 90.0),
    ]:
        of_gpu = msgspec.structs.replace(gpu(at_s, gpu_util_pct=percent), others_pct=percent / 2)
        bench.fold_all(of_gpu, host(at_s, percent))
    bench.finished(1.0)
    bench.left(after_step=4)
    (block,) = bench.outcomes
    assert (block.of("gpu_util_pct"), block.of("cpu_pct"), block.others_pct) == (20.0, 20.0, 10.0)


def test_the_newest_readings_of_a_long_block_are_kept():
    bench = Bench(0).entered(warmup_steps=0)
    began_s = bench.now_s + LAG_S
    bench.finished(900.0, 900.0)
    for number in range(SAMPLES_KEPT + 1):
        percent = 50.0 if number else 100.0
        reading = gpu(began_s + number / 1e3, gpu_util_pct=percent)
        bench.fold_all(reading, host(began_s, percent))
    bench.finished(1.0)
    bench.left(after_step=3)
    assert (bench.outcomes[0].of("gpu_util_pct"), bench.outcomes[0].of("cpu_pct")) == (50.0, 50.0)


def test_a_pause_restarts_only_the_block_it_came_in():
    bench = Bench(0, 1).entered(warmup_steps=0)
    bench.finished(50.0, 50.0)
    bench.changed(block=1, after_step=3, warmup_steps=0)
    bench.finished(50.0, segment=1)
    bench.finished(900.0)
    bench.fold_all(paused(bench.now_s, after_step=4), resumed(bench.now_s))
    bench.finished(50.0, 50.0, 1.0)
    bench.left(after_step=7)
    assert [(one.number, one.busy_s) for one in bench.outcomes] == [
        (0, pytest.approx(0.1)),
        (1, pytest.approx(0.1)),
    ]


@pytest.mark.parametrize("reports_steps", [True, False])
def test_by_the_wall_clock_its_time_is_the_blocks(reports_steps):
    bench = Bench(0, 1, wall_clock="instrumented" if reports_steps else "uninstrumented").entered()
    if reports_steps:
        bench.finished(*[50.0] * 6)
    bench.fold_all(Timed(at_s=1.0, block=0, steps=6, samples=48, seconds=0.6))
    bench.changed(block=1, after_step=6)
    bench.step = 6
    bench.finished(50.0)
    assert bench.outcomes == [MeasuredBlock(number=0, steps=6, samples=48, busy_s=0.6)]


def test_the_next_block_may_be_timed_before_the_end_of_the_one_before_is_reported():
    bench = Bench(0, 1, wall_clock="uninstrumented").entered()
    bench.fold_all(Timed(at_s=1.0, block=0, steps=6, samples=48, seconds=0.6))
    bench.changed(block=1, after_step=6)
    bench.fold_all(Timed(at_s=2.0, block=1, steps=6, samples=48, seconds=0.3))
    bench.changed(block=None, after_step=12)
    bench.step = 12
    bench.finished(50.0)
    assert [(one.number, one.busy_s) for one in bench.outcomes] == [(0, 0.6), (1, 0.3)]


@pytest.mark.parametrize("steps", [1, 6])
def test_a_timed_block_that_was_cut_short_has_no_outcome(steps):
    bench = Bench(0, wall_clock="instrumented").entered()
    if steps == 1:  # told to end the blocks: it is left, but not home yet
        bench.fold_all(Timed(at_s=1.0, block=0, steps=1, samples=8, seconds=0.1))
    bench.changed(block=None, after_step=6)
    if steps == 6:  # another change came in between
        bench.fold_all(Timed(at_s=1.0, block=0, steps=6, samples=48, seconds=0.6))
    bench.step = 6
    bench.finished(50.0)
    assert bench.outcomes == []


# ── whatever the order of arrival ───────────────────────────────────────────────────────


@st.composite
def runs(draw):
    """A worker's records of a run of blocks, and the steps expected in each block."""
    count = draw(st.integers(1, 6))
    blocks = [
        Block(
            number=number,
            changes=draw(st.sampled_from([OFF, ON, {"batch_size": "16"}])),
            min_steps=draw(st.integers(1, 4)),
            min_s=0.0,
        )
        for number in range(7, 7 + count)
    ]
    bad = draw(st.sampled_from([None, "refused", "too big"]))
    worker = Worker(
        behind=0,
        refuses=lambda s: "no" if bad == "refused" and s["batch_size"] == "16" else None,
        too_big=lambda s: bad == "too big" and s["batch_size"] == "16",
    )
    worker.obey(Blocks(id=1, run=RUN, blocks=tuple(blocks)))
    cut = draw(st.one_of(st.none(), st.integers(1, 30)))
    turns = 0
    while worker.blocks.running:
        if turns == cut:
            worker.obey(Change(id=2, settings={"num_workers": "4"}))
            break
        turns += 1
        worker.turn()
    for _ in range(draw(st.integers(1, 3))):
        worker.turn()
    return blocks, worker.take()


def late(data, records):
    """The same records, with reports of steps delayed and batched at random."""
    waiting, behind = deque(), []
    total = 0

    def report(count):
        nonlocal total
        steps = tuple(waiting.popleft() for _ in range(count))
        total = steps[-1].step if steps else total
        return Progress(until_s=0.0, steps=steps, total_steps=total, total_samples=0)

    for record in records:
        if isinstance(record, Progress):
            waiting.extend(record.steps)
            behind.append(report(data.draw(st.integers(0, len(waiting)))))
            continue
        behind.append(record)
        if data.draw(st.booleans()):
            behind.append(report(data.draw(st.integers(0, len(waiting)))))
    return [*behind, report(len(waiting))]


def expected(blocks, records):
    """Count steps by segment, from all records at once."""
    steps = [one for record in records if isinstance(record, Progress) for one in record.steps]
    refused = {record.block for record in records if isinstance(record, Refused)}
    least = {block.number: block.min_steps for block in blocks}
    entered = [record for record in records if isinstance(record, State)]
    for event, following in pairwise(entered):
        own = [one for one in steps if one.segment == event.segment]
        kept = [one for one in own[WARMUP:] if one.step < following.after_step]
        runs = event.block is not None and event.block not in refused
        if runs and len(kept) >= least[event.block]:
            yield event.block, kept


@given(runs(), st.data())
def test_no_step_is_counted_twice_or_in_the_wrong_block(run, data):
    blocks, records = run
    first = Worker().start()
    stamp = Normaliser().stamp
    log = BlockLog(RUN, blocks, stamp(first))
    outcomes = [one for record in map(stamp, late(data, records)) for one in log.fold(record)]
    measured = [one for one in outcomes if isinstance(one, MeasuredBlock)]
    truth = list(expected(blocks, records))
    assert [one.number for one in measured] == [number for number, _ in truth]
    for one, (_, kept) in zip(measured, truth, strict=True):
        assert one == having(
            steps=len(kept),
            samples=sum(step.samples for step in kept),
            busy_s=pytest.approx(sum(step.step_ms for step in kept) / 1e3),
        )
    refused = [one.number for one in outcomes if isinstance(one, NotRun)]
    assert refused == [record.block for record in records if isinstance(record, Refused)]
    assert log.over is not None
