"""The messages of an unfolded interval fold into the same interval again."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpudash.protocol import Progress
from gpudash.recording.intervals import BIN, Burst
from gpudash.recording.unfold import unfold
from tests.recording.test_intervals_properties import SCRIPTS, folded, played
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, started

KEPT = ("began_s", "ended_s", "steps", "samples", "host", "gpus")
MEANS = ("data_ms", "host_ms", "device_ms", "cpu_ms", "instruments_ms")


def in_order(items):
    def at_s(item):
        return item.until_s if isinstance(item, Progress) else item.at_s

    return sorted(items, key=at_s)


def with_readings(items, end_s):
    count = int((end_s - BEGAN_S) * 5)
    times = [BEGAN_S + 0.1234 + tick / 5 for tick in range(count)]
    readings = [one for at_s in times for one in (gpu(at_s, power_w=at_s % 7), host(at_s))]
    return in_order([*items, *readings])


def again(row):
    """Return the row that the row's own messages fold into."""
    items = [replace(started(row.began_s, row.settings), segment=row.segment), *unfold(row)]
    (twin,) = folded(items, row.ended_s, 10.0, began_s=row.began_s)
    return twin


def sum_ms(row):
    return sum(ms * count for burst in row.bursts for ms, count in burst.step_times)


@settings(deadline=None)  # a busy machine is no failure
@given(SCRIPTS)
def test_an_unfolded_interval_folds_into_itself(script):
    items, end_s = played(script)
    for row in folded(with_readings(items, end_s), end_s, 0.5):
        twin = again(row)
        assert [getattr(twin, name) for name in KEPT] == [getattr(row, name) for name in KEPT]
        for name in MEANS:
            assert getattr(twin, name) == pytest.approx(getattr(row, name), abs=1e-5)
        assert sum_ms(twin) == pytest.approx(sum_ms(row))
        assert twin.phases_ms == pytest.approx(row.phases_ms)
        kept = (row.step, row.loss) if row.steps else (0, None)
        assert (twin.step, twin.loss) == kept


def progress_of(lengths, *, cpu_ms=7.0):
    run = Trainer()
    reports = []
    for step_ms in lengths:
        report = run.step(step_ms)
        steps = tuple(msgspec.structs.replace(one, cpu_ms=cpu_ms) for one in report.steps)
        reports.append(msgspec.structs.replace(report, steps=steps, instruments_ms=0.25))
    return [Trainer().start(), *reports], run.now_s


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.floats(1.0, 30.0), min_size=1, max_size=60))
def test_sums_are_kept_and_percentiles_to_the_width_of_a_bin(lengths):
    items, end_s = progress_of(lengths)
    row, *others = folded(items, end_s, 5.0)
    assert not others
    progress, *_ = unfold(row)
    assert sum(step.count for step in progress.steps) == len(lengths)
    assert sum(step.count * step.step_ms for step in progress.steps) == pytest.approx(sum(lengths))
    twin, *_ = folded([items[0], progress], end_s, 5.0)
    for name in ("step_ms_p50", "step_ms_p95"):
        assert getattr(twin, name) == pytest.approx(getattr(row, name), rel=BIN)
    for name in ("cpu_ms", "device_ms", "instruments_ms", "samples", "total_samples"):
        assert getattr(twin, name) == pytest.approx(getattr(row, name))


def test_a_pause_within_a_row_separates_its_steps():
    run = Trainer()
    items = [run.start(), *run.steps(2), run.pause(), run.wait(0.1), run.resume(), *run.steps(5)]
    (row, *_) = folded(items, run.now_s, 0.5)
    assert row.bursts == (
        Burst(pytest.approx(BEGAN_S), ((pytest.approx(50.0), 2),)),
        Burst(pytest.approx(BEGAN_S + 0.2), ((pytest.approx(50.0), 5),)),
    )
    progress, *_ = unfold(row)
    assert [step.finished_s - BEGAN_S for step in progress.steps] == pytest.approx([0.1, 0.45])


def test_a_step_longer_than_a_row_begins_in_one_before():
    run = Trainer()
    rows = folded([run.start(), run.step(1600.0)], run.now_s, 0.5)
    assert [row.bursts for row in rows[:3]] == [()] * 3
    assert rows[3].bursts[0].began_s == pytest.approx(BEGAN_S)


def test_values_of_a_gpu_that_a_row_lacks_come_from_a_reading():
    first = gpu(BEGAN_S + 0.1, gpu_util_pct=50.0, mem_total_mib=1e5, energy_j=4.0)
    run = Trainer()
    items = [run.start(), first, *run.steps(20)]
    row, *_ = folded(items, run.now_s, 0.5)
    _, reading, _ = unfold(row, {first.uuid: first})
    assert (reading.name, reading.number("mem_total_mib"), reading.number("energy_j")) == (
        first.name,
        1e5,
        None,
    )
