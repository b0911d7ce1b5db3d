"""A CSV is read as messages and intervals; a note says what it lacks."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudash.errors import GpudashError, UsageError
from gpudash.protocol.training import Progress
from gpudash.recording.csv_format import columns
from gpudash.recording.csv_reader import UNKNOWN, CsvReader, log_or_csv, open_recording
from gpudash.recording.intervals import Interval
from gpudash.recording.log import LOG_VERSION, LONGEST_LINE, LogReader
from gpudash.recording.unfold import unfold
from tests.lives import failed, turns
from tests.recording.damage import DAMAGE, damaged
from tests.recording.test_csv_format import GOLDEN, interval, scripted
from tests.recording.test_log import intervals, recorded
from tests.scripted_run import BEGAN_S, DEVICE, started
from tests.sinks.test_recording import recorder_of, take


def test_rows_are_read_as_the_intervals_they_came_of():
    rows, found = scripted(), intervals(CsvReader(GOLDEN))
    assert len(found) == len(rows)
    for row, twin in zip(rows, found, strict=True):
        assert twin.ended_s == pytest.approx(row.ended_s - BEGAN_S, abs=1e-3)
        for name in ("workload", "segment", "settings", "step", "steps", "samples"):
            assert getattr(twin, name) == getattr(row, name)
        rate = row.steps_per_s
        assert twin.steps_per_s == (rate and pytest.approx(rate, rel=0.01))
        assert [gpu.uuid for gpu in twin.gpus] == [gpu.uuid for gpu in row.gpus]
        for gpu, of_twin in zip(row.gpus, twin.gpus, strict=True):
            for name in ("gpu_util_pct", "throttle"):
                assert of_twin.values.get(name) == gpu.values.get(name)
        in_csv = {name: value for name, value in row.values.items() if name in columns()}
        assert twin.values == pytest.approx(in_csv, abs=1e-4)
        assert twin.ranks[0].transform_ms == pytest.approx(row.ranks[0].transform_ms, abs=0.01)


def test_segments_become_starts_and_changes():
    messages = [one.body for one in CsvReader(GOLDEN) if not isinstance(one, Interval)]
    assert [name for name, _ in turns(messages)] == ["started", "changed", "started"]
    assert messages[1].changes == {"pipelined": "on"}
    assert [note.text for note in messages[0].notes] == [UNKNOWN]
    assert (messages[0].process.device.uuid, messages[0].process.device.kind) == (
        "GPU-1111",
        "cuda",
    )


def steps_of(row):
    return [step for _, one in unfold(row) if isinstance(one, Progress) for step in one.steps]


def test_the_json_beside_knows_device_and_failures(tmp_path):
    recorder = recorder_of(tmp_path)
    take(recorder, started(BEGAN_S))
    take(recorder, interval())
    take(recorder, failed(BEGAN_S + 0.7, "too large", "out_of_memory"))
    recorder.close()
    started_again, row, failure = CsvReader(recorder.path)
    process, end = started_again.body.process, failure.body
    assert (process.device, process.versions["torch"]) == (DEVICE, "2.11.0")
    assert row.steps == 5
    assert (end.at_s, end.failure.kind) == (0.7, "out_of_memory")
    assert end.failure.sentence == "too large"


def test_a_json_of_version_1_is_read(tmp_path):
    recorder = recorder_of(tmp_path)
    take(recorder, started(BEGAN_S))
    take(recorder, interval())
    recorder.close()
    known = json.loads(recorder.metadata_path.read_text())
    del known["failures"]  # as before there were any
    old = known | {"schema_version": 1, "account": {"wall_s": 1.0, "unexplained_s": 0.5}}
    recorder.metadata_path.write_text(json.dumps(old))
    first, row = CsvReader(recorder.path)
    assert (first.body.process.device, row.steps) == (DEVICE, 5)


NO_UTF8 = b'{"started_utc": "\xff"}'


@pytest.mark.parametrize(
    "beside", [b"", b"{}", b"[" * 10_000, b"\xff", b'{"schema_version": 9}', NO_UTF8]
)
def test_a_damaged_json_is_ignored(tmp_path, beside):
    path = tmp_path / "run.csv"
    path.write_bytes(GOLDEN.read_bytes())
    path.with_suffix(".json").write_bytes(beside)
    assert len(intervals(CsvReader(path))) == len(scripted())


@pytest.mark.parametrize(
    ("steps", "p50", "p95"), [(1, 480.0, 480.0), (150, 3.3, 3.6), (40, 12.0, 12.9)]
)
def test_step_times_fit_sum_median_and_percentile(tmp_path, steps, p50, p95):
    recorder = recorder_of(tmp_path)
    percentiles = {"step_ms_p50": p50, "step_ms_p95": p95}
    row = interval(step=steps, steps=steps, samples=8 * steps, values=percentiles)
    take(recorder, row)
    recorder.close()
    (twin,) = intervals(CsvReader(recorder.path))
    again = steps_of(twin)
    assert sum(step.count for step in again) == steps
    trained_ms = 500.0 if steps > 1 else 480.0
    assert sum(step.count * step.step_ms for step in again) == pytest.approx(trained_ms)
    ordered = sorted(step.step_ms for step in again for _ in range(step.count))
    assert ordered[(steps - 1) // 2] == pytest.approx(p50)
    assert ordered[int(0.95 * (steps - 1))] == pytest.approx(p95)


def test_the_first_bytes_decide_between_log_and_csv(tmp_path):
    assert isinstance(open_recording(GOLDEN), CsvReader)
    assert isinstance(open_recording(recorded(tmp_path)), LogReader)


@pytest.mark.parametrize("version", [1, LOG_VERSION])
def test_a_csv_is_read_itself_if_the_log_beside_it_is_of_another_version(tmp_path, version):
    log = recorded(tmp_path)
    line = f'"gpudash_log":{LOG_VERSION}'
    log.write_text(log.read_text().replace(line, f'"gpudash_log":{version}', 1))
    csv = log.with_suffix(".csv")
    assert log_or_csv(csv) == (log if version == LOG_VERSION else csv)


@pytest.mark.parametrize(
    "first", ["time_s", "time_stamp,loss\n1,2\n", 'time_s,"', "time_s," * 2**18]
)
def test_a_csv_of_another_tool_is_refused_in_a_line(tmp_path, first):
    path = tmp_path / "other.csv"
    path.write_text(first)
    with pytest.raises(
        UsageError, match=r"other\.csv is not a recording; valid: the .csv or the .jsonl"
    ):
        open_recording(path)


CELLS = ["nan", "inf", "-1", "1e999", "9" * 5000, "x" * 200_000, "", "0x10", '"', "=;="]


@settings(deadline=None)  # a busy machine is no failure
@given(st.sampled_from(list(columns())), st.sampled_from(CELLS))
def test_an_invalid_cell_costs_at_most_its_row(tmp_path_factory, column, cell):
    lines = GOLDEN.read_text().splitlines()
    values = lines[3].split(",")
    values[list(columns()).index(column)] = cell
    path = tmp_path_factory.mktemp("cell") / "run.csv"
    path.write_text("\n".join([*lines[:3], ",".join(values), *lines[4:], ""]), encoding="utf-8")
    reader = CsvReader(path)
    assert len(intervals(reader)) >= len(scripted()) - 2 - reader.refused


@settings(deadline=None)  # a busy machine is no failure
@given(damage=DAMAGE)
def test_any_damaged_csv_is_read_or_refused_in_a_line(tmp_path_factory, damage):
    path = tmp_path_factory.mktemp("damaged") / "run.csv"
    path.write_bytes(damaged(GOLDEN.read_bytes(), damage))
    rows = []
    try:
        rows = intervals(open_recording(path))
    except GpudashError:
        return
    for row in rows:
        assert row.began_s < row.ended_s
        assert sum(step.count for step in steps_of(row)) == row.steps


def test_endless_rows_of_one_moment_are_held_in_part(tmp_path):
    path = tmp_path / "run.csv"
    first, row = GOLDEN.read_text().splitlines()[:2]
    most = LONGEST_LINE // len(row + "\n")
    path.write_text("\n".join([first, *[row] * (most + 5), ""]))
    reader = CsvReader(path)
    assert len(intervals(reader)) == 1
    assert reader.refused == 5


def test_a_line_that_never_ends_ends_the_reading(tmp_path):
    path = tmp_path / "run.csv"
    path.write_bytes(GOLDEN.read_bytes() + b"1" * 3 * LONGEST_LINE)
    assert len(intervals(CsvReader(path))) == len(scripted())
