"""A CSV is read as the intervals of its rows."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudash.errors import GpudashError, UsageError
from gpudash.recording.csv_format import columns
from gpudash.recording.csv_reader import CsvReader, log_of, log_or_csv, open_recording
from gpudash.recording.log import LOG_VERSION, LONGEST_LINE, RowReader
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
        of_row, of_twin = (
            {name: value for name, value in one.values.items() if name in columns()}
            for one in (row, twin)
        )
        assert of_twin == pytest.approx(of_row, abs=1e-4)
        assert twin.ranks[0].transform_ms == pytest.approx(row.ranks[0].transform_ms, abs=0.01)


@pytest.fixture
def described(tmp_path):
    """A recording of a row, with its JSON."""
    recorder = recorder_of(tmp_path)
    take(recorder, started(BEGAN_S))
    take(recorder, interval())
    recorder.close()
    return recorder


OF_VERSION_1 = {"schema_version": 1, "account": {"wall_s": 1.0, "unexplained_s": 0.5}}


@pytest.mark.parametrize("old", [{}, OF_VERSION_1], ids=["as it is", "of version 1"])
def test_the_json_beside_knows_the_device(described, old):
    known = json.loads(described.metadata_path.read_text())
    del known["failures"]  # as before there were any
    described.metadata_path.write_text(json.dumps(known | old))
    reader = CsvReader(described.path)
    assert [row.steps for row in reader] == [5]
    assert (reader.metadata.device, reader.origin.versions["torch"]) == (DEVICE, "2.11.0")


NO_UTF8 = b'{"started_utc": "\xff"}'


@pytest.mark.parametrize(
    "beside", [b"", b"{}", b"[" * 10_000, b"\xff", b'{"schema_version": 9}', NO_UTF8]
)
def test_a_damaged_json_is_ignored(tmp_path, beside):
    path = tmp_path / "run.csv"
    path.write_bytes(GOLDEN.read_bytes())
    path.with_suffix(".json").write_bytes(beside)
    assert len(intervals(CsvReader(path))) == len(scripted())


def test_the_first_bytes_decide_between_log_and_csv(tmp_path):
    assert isinstance(open_recording(GOLDEN), CsvReader)
    assert isinstance(open_recording(recorded(tmp_path)), RowReader)


@pytest.mark.parametrize("version", [1, LOG_VERSION])
def test_a_csv_is_read_itself_if_the_log_beside_it_is_of_another_version(tmp_path, version):
    log = recorded(tmp_path)
    line = f'"gpudash_log":{LOG_VERSION}'
    log.write_text(log.read_text().replace(line, f'"gpudash_log":{version}', 1))
    csv = log.with_suffix(".csv")
    assert log_or_csv(csv) == (log if version == LOG_VERSION else csv)


def test_what_needs_the_log_says_that_there_is_none_and_what_reads_a_csv_alone(tmp_path):
    log = recorded(tmp_path)
    assert log_of(log.with_suffix(".csv")) == log_of(log) == log
    log.unlink()
    said = r"run\.csv has no log beside it: no run\.jsonl; gpudash compare and gpudash export read"
    with pytest.raises(UsageError, match=said):
        log_of(log.with_suffix(".csv"))


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
        assert 0 <= row.ranks[0].timed <= row.steps


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
