"""An interval's messages are those of a training that had the same steps and readings."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import Progress
from gpudash.recording.rank_steps import BIN, Burst
from gpudash.recording.unfold import unfold
from tests.recording.test_intervals_properties import folded
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, measured


def progress_of(lengths):
    run = Trainer()
    reports = []
    for step_ms in lengths:
        report = run.step(step_ms)
        steps = tuple(measured(one, cpu_ms=7.0, own_phase_ms=3.0) for one in report.steps)
        reports.append(replace(report, steps=steps, instruments_ms=0.25))
    return [Trainer().start(), *reports], run.now_s


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.floats(1.0, 30.0), min_size=1, max_size=60))
def test_an_unfolded_interval_folds_into_itself(lengths):
    """All but its percentiles, which are kept to the width of a bin."""
    items, end_s = progress_of(lengths)
    readings = [host(BEGAN_S + 1e-4, 150.0, core_wait_pct=3.0), gpu(BEGAN_S + 1e-4, power_w=7.0)]
    row, *others = folded([*items, *readings], end_s, 5.0)
    assert not others
    messages = [body for _, body in unfold(row, {}, {})]
    assert [type(one) for one in messages] == [Progress, HostReading, GpuReading]
    progress = messages[0]
    assert sum(step.count for step in progress.steps) == len(lengths)
    assert sum(step.count * step.step_ms for step in progress.steps) == pytest.approx(sum(lengths))
    (twin,) = folded([items[0], *messages], end_s, 5.0)
    percentiles = ("step_ms_p50", "step_ms_p95")
    for name in percentiles:
        assert twin.values[name] == pytest.approx(row.values[name], rel=BIN)
    assert without(twin, percentiles) == pytest.approx(without(row, percentiles))
    kept = ("step", "steps", "samples", "total_samples", "instruments_ms")
    for name in kept:
        assert getattr(twin.ranks[0], name) == getattr(row.ranks[0], name)
    assert (twin.gpus, twin.began_s, twin.ended_s) == (row.gpus, row.began_s, row.ended_s)


def without(row, names):
    return {name: value for name, value in row.values.items() if name not in names}


def test_a_pause_within_a_row_separates_its_steps():
    run = Trainer()
    items = [run.start(), *run.steps(2), run.pause(), run.wait(0.1), run.resume(), *run.steps(5)]
    (row, *_) = folded(items, run.now_s, 0.5)
    assert row.ranks[0].bursts == (
        Burst(pytest.approx(BEGAN_S), ((pytest.approx(50.0), 2),)),
        Burst(pytest.approx(BEGAN_S + 0.2), ((pytest.approx(50.0), 5),)),
    )
    (_, progress), *_ = unfold(row, {}, {})
    assert [step.finished_s - BEGAN_S for step in progress.steps] == pytest.approx([0.1, 0.45])


def test_a_step_longer_than_a_row_begins_in_one_before():
    run = Trainer()
    rows = folded([run.start(), run.step(1600.0)], run.now_s, 0.5)
    assert [row.ranks[0].bursts for row in rows[:3]] == [()] * 3
    assert rows[3].ranks[0].bursts[0].began_s == pytest.approx(BEGAN_S)


def test_a_row_without_a_report_tells_of_no_progress():
    (row,) = folded([host(BEGAN_S + 0.1)], BEGAN_S + 0.5, 0.5)
    assert [type(body) for _, body in unfold(row, {}, {})] == [HostReading]


def test_values_of_a_gpu_that_a_row_lacks_come_from_a_reading():
    first = gpu(BEGAN_S + 0.1, gpu_util_pct=50.0, mem_total_mib=1e5)
    run = Trainer()
    items = [run.start(), first, *run.steps(20)]
    row, *_ = folded(items, run.now_s, 0.5)
    *_, (_, reading) = unfold(row, {first.uuid: first}, {})
    assert (reading.name, reading.number("mem_total_mib")) == (first.name, 1e5)


def test_rows_with_energy_are_a_counter_that_begins_anew_after_one_without():
    run, counters = Trainer(), {}
    items = [run.start(), gpu(BEGAN_S + 0.1, power_w=300.0), *run.steps(10)]
    row, *_ = folded(items, run.now_s, 0.5)

    def read(energy_j):
        known = row.gpus[0].values | ({} if energy_j is None else {"energy_j": energy_j})
        metered = replace(row, gpus=(replace(row.gpus[0], values=known),))
        *_, (_, reading) = unfold(metered, {}, counters)
        assert reading.energy_at_s in (None, reading.at_s)
        return reading.number("energy_j")

    assert [read(one) for one in (None, 50.0, 25.0, 10.0)] == [None, 0.0, 25.0, 35.0]
    assert [read(one) for one in (None, 5.0, 6.0)] == [None, 0.0, 6.0]
