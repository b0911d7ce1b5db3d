"""Each training process has a row."""

from itertools import count

import msgspec
import pytest

from gpudash.protocol.envelope import Envelope
from gpudash.ranks.job import Ranks
from gpudash.ranks.rank import Rank
from tests import simulated_ranks
from tests.lives import failed, in_process, parted, stamped, stopped
from tests.scripted_run import BEGAN_S, Trainer, gpu, host

SEQ = count()


def said(rank, *bodies, source="training", sent_s=0.0):
    return [
        Envelope(source=source, rank=rank, seq=next(SEQ), sent_s=sent_s, body=body)
        for body in bodies
    ]


def trained(rank, step_ms, steps=20):
    """The messages of a process that starts and trains for a second or more."""
    run = Trainer(stamps=False)
    ready_s = BEGAN_S + 1e-9 * next(SEQ)  # each is another process
    return said(rank, in_process(run.start(), ready_s=ready_s), *run.steps(steps, step_ms))


def pair():
    return [*trained(0, 50.0), *trained(1, 50.0)]


def rows(*envelopes, after_s=1.0, hang=False):
    ranks = Ranks()
    for envelope in stamped(envelopes):
        ranks.take(envelope)
    return ranks.rows(BEGAN_S + after_s, hang=hang)


def test_each_process_has_its_own_steps_rates_and_times():
    first, second = rows(*trained(1, 100.0, steps=10), *trained(0, 50.0))
    assert (first.rank, second.rank) == (0, 1)
    assert (first.steps, second.steps) == (20, 10)
    assert first.steps_per_s == pytest.approx(20.0)
    assert second.steps_per_s == pytest.approx(10.0)
    assert (first.step_ms_p50, second.step_ms_p50) == (50.0, 100.0)
    assert first.values == {"data_ms": 1.0, "host_ms": 2.0, "device_ms": 40.0, "forward_ms": 10.0}
    assert (first.state, first.pid, first.loss) == ("training", 42, 1 / 20)


def test_in_a_hang_no_rank_trains():
    stuck = rows(*pair(), after_s=20.0, hang=True)
    assert [(row.steps_per_s, row.samples_per_s) for row in stuck] == [(0.0, 0.0)] * 2


def test_a_replay_tells_by_a_reading_what_a_rank_reported_of_its_collectives():
    values = {"collective_bus_mib": 66.75, "collective_ms": 12.25, "collective_exposed_ms": 4.5}
    live = msgspec.structs.replace(Trainer().steps(1, 50.0)[0], values=values)
    for message in (live, host(BEGAN_S, 150.0, **values)):
        first, second = rows(*pair(), *said(0, message))
        assert first.values.items() >= values.items()
        assert not second.values.keys() & values.keys()


def test_a_single_process_needs_no_table_and_other_sources_are_no_ranks():
    assert rows(*trained(0, 50.0)) == ()
    assert rows(*trained(0, 50.0), *said(1, gpu(BEGAN_S), source="telemetry")) == ()


@pytest.fixture
def run():
    return Trainer(stamps=False)


def test_what_was_not_measured_is_unknown(run):
    blind = msgspec.structs.replace(run.step().steps[0], values={})
    silent = msgspec.structs.replace(run.progress(blind), loss=None)
    _, second = rows(*trained(0, 50.0), *said(1, run.start(), silent))
    assert (second.values, second.loss) == ({}, None)


def test_the_newest_collectives_stay_until_others_are_measured(run):
    told = {"collective_bus_mib": 170.0, "collective_ms": 0.8}
    measured = msgspec.structs.replace(run.progress(run.step().steps[0]), values=told)
    own = said(1, run.start(), measured, run.step())
    _, second = rows(*trained(0, 50.0), *own)
    assert second.values.items() >= told.items()


def test_only_rank_0_and_the_session_end_the_other_ranks():
    end = failed(BEGAN_S + 1, "it died")
    assert [row.state for row in rows(*pair(), *said(1, end))] == ["training", "failed"]
    assert [row.state for row in rows(*pair(), *said(0, end))] == ["failed", "failed"]
    ended = rows(*pair(), *said(0, stopped(BEGAN_S + 1), source="session"))
    assert [(row.state, row.steps_per_s) for row in ended] == [("stopped", None)] * 2


def test_before_it_trains_a_process_is_starting():
    _, second = rows(*trained(0, 50.0), *said(1, Trainer().progress()))
    assert second.steps == 0
    assert (second.state, second.pid, second.steps_per_s) == ("starting", None, None)


def test_a_pause_is_not_a_stall(run):
    paused = said(1, run.start(), *run.steps(20), run.pause())
    _, second = rows(*trained(0, 50.0), *paused)
    assert (second.state, second.steps_per_s) == ("paused", 0.0)
    run.wait(60.0)
    resumed = said(1, run.resume(), run.step())
    _, second = rows(*trained(0, 50.0), *paused, *resumed, after_s=61.05)
    assert (second.state, second.steps_per_s) == ("training", pytest.approx(20.0))


@pytest.mark.parametrize("how", ["finished", "failed"])
def test_a_process_that_has_ended_has_no_current_times(run, how):
    trained_20 = run.start(), *run.steps(20)
    end = failed(run.now_s, "it died") if how == "failed" else run.finish()
    _, second = rows(*trained(0, 50.0), *said(1, *trained_20, end))
    assert (second.state, second.steps) == (how, 20)
    assert (second.steps_per_s, second.values) == (None, {})


def test_a_restart_is_counted_by_its_process():
    again = Trainer(stamps=False)
    other = in_process(again.start(), pid=43, ready_s=BEGAN_S + 1)
    _, second = rows(*pair(), *said(1, other, *again.steps(3)))
    assert (second.pid, second.restarts, second.steps) == (43, 1, 3)
    _, second = rows(*pair(), *trained(1, 50.0))
    assert second.restarts == 0  # the same process, reached again


def test_a_process_that_ended_while_the_others_live_has_ended_until_another_comes():
    messages = [*pair(), *said(1, parted(BEGAN_S + 1))]
    _, second = rows(*messages)
    assert (second.state, second.steps, second.steps_per_s) == ("ended", 20, None)
    _, second = rows(*messages, *trained(1, 50.0))
    assert second.state == "training"


def test_a_rank_is_silent_that_says_nothing_while_another_one_does():
    for sent_s, state in ((10.5, "silent"), (10.0, "training"), (0.0, "training")):
        of_0 = [msgspec.structs.replace(one, sent_s=sent_s) for one in trained(0, 50.0)]
        assert [row.state for row in rows(*trained(1, 50.0), *of_0)] == ["training", state]


def test_each_rank_has_what_was_read_of_its_own_processes():
    read = [
        one
        for rank in (0, 1)
        for one in said(rank, host(BEGAN_S + 1, 100.0 * (1 + rank)), source="telemetry")
    ]
    messages = [*pair(), *read]
    assert [row.host.number("cpu_pct") for row in rows(*messages)] == [100.0, 200.0]
    later = said(0, host(BEGAN_S + 11), source="telemetry")  # 10 s after the other one
    assert all(row.host is not None for row in rows(*messages, *later, after_s=11.0))
    later = said(0, host(BEGAN_S + 60), source="telemetry")
    assert [row.host is not None for row in rows(*messages, *later, after_s=60.0)] == [True, False]


def test_a_gpu_that_is_read_no_more_shows_nothing_while_another_one_is():
    def read(rank, at_s):
        reading = msgspec.structs.replace(gpu(at_s), uuid=f"GPU-{rank}")
        return said(rank, reading, source="telemetry")

    started = [one for rank in (0, 1) for one in said(rank, simulated_ranks.start(rank))]
    messages = [*started, *read(0, BEGAN_S), *read(1, BEGAN_S)]
    assert [row.gpu is not None for row in rows(*messages, after_s=60.0)] == [True, True]
    later = read(0, BEGAN_S + 60)
    assert [row.gpu is not None for row in rows(*messages, *later, after_s=60.0)] == [True, False]


def test_in_blocks_current_times_are_of_both_sides_and_elsewhere_of_one():
    run = Trainer()
    rank = Rank()
    for item in (run.start(), *run.steps(5, 100.0), run.change(pipelined="on"), run.step(50.0)):
        rank.fold(item)
    assert rank.rate(run.now_s, rests=False).step_ms_p50 == 50.0
    for item in (run.enter_block(0, pipelined="off"), *run.steps(5, 100.0)):
        rank.fold(item)
    for item in (run.enter_block(1, pipelined="on"), run.step(50.0)):
        rank.fold(item)
    assert rank.rate(run.now_s, rests=False).step_ms_p50 == 100.0
