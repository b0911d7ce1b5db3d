"""A log is exported to the files that the run wrote, and to other programs' formats."""

import json

import pytest

from gpudash.errors import RecordingError, UsageError
from gpudash.recording.csv_format import columns
from gpudash.sinks.export import export, export_to
from tests.recording.record import record, sent
from tests.recording.test_csv_format import cells_of
from tests.recording.test_log import ORIGIN, recorded
from tests.scripted_run import BEGAN_S, Trainer


@pytest.fixture
def log(tmp_path):
    return recorded(tmp_path)


def test_csv_and_json_are_those_that_the_run_wrote_to_the_byte(log, tmp_path):
    assert export(log, tmp_path / "again.csv") == 0
    for suffix in (".csv", ".json"):
        again = (tmp_path / "again").with_suffix(suffix)
        assert again.read_bytes() == log.with_suffix(suffix).read_bytes()
    assert not (tmp_path / "again.jsonl").exists()


def test_a_killed_run_exports_its_rows_and_an_incomplete_json(log, tmp_path):
    log.write_bytes(log.read_bytes()[:-200])
    export(log, tmp_path / "again.csv")
    rows = cells_of(tmp_path / "again.csv")
    assert rows == cells_of(tmp_path / "run.csv")[: len(rows)]
    assert not json.loads((tmp_path / "again.json").read_text())["complete"]


@pytest.mark.parametrize("source", ["run.jsonl", "run.csv"])
def test_json_lines_are_the_rows_as_numbers_and_text(tmp_path, source):
    recorded(tmp_path)
    export(tmp_path / source, tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    expected = cells_of(tmp_path / "run.csv")
    assert len(rows) == len(expected)
    assert tuple(rows[0]) == tuple(columns())
    for row, cells in zip(rows, expected, strict=True):
        assert (row["levers"], row["steps"]) == (cells["levers"], int(cells["steps"]))
        assert row["gpu_util_pct"] == (
            float(cells["gpu_util_pct"]) if cells["gpu_util_pct"] else None
        )


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_a_full_disk_is_reported_in_a_line(tmp_path, name):
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(RecordingError, match="the disk is full"):
        export(recorded(tmp_path), tmp_path / name, force=True)


@pytest.mark.parametrize("name", ["tensorboard", "trace"])
def test_a_csv_alone_is_exported_to_others_too(tmp_path, name):
    recorded(tmp_path).with_suffix(".csv").rename(tmp_path / "alone.csv")
    assert export_to(tmp_path / "alone.csv", [(name, str(tmp_path / "again.prom"))]) == 0
    assert (tmp_path / "again.prom").exists()


def test_a_csv_is_not_written_anew_without_its_log(tmp_path):
    csv_alone = recorded(tmp_path).with_suffix(".csv")
    with pytest.raises(UsageError, match=r"run\.csv is a CSV already; valid: its log"):
        export(csv_alone, tmp_path / "again.csv")


@pytest.mark.parametrize(
    ("batch_size", "number"), [("9" * 99, None), (str(2**63), None), ("x", None), ("٣", 3)]
)
def test_a_batch_size_that_is_none_is_left_out_and_settings_that_no_workload_has_are_kept(
    tmp_path, batch_size, number
):
    run = Trainer()
    bodies = [run.start({"batch_size": batch_size, "seed": "x"}), *run.steps(10)]
    log = record(tmp_path / "run.csv", sent(bodies, BEGAN_S), run.now_s, ORIGIN)
    for name in ("trace", "tensorboard", "csv"):
        export_to(log, [(name, str(tmp_path / f"again.{name}"))])
    assert ('"batch_size"' in (tmp_path / "again.trace").read_text()) == (number is not None)
    export(log, tmp_path / "rows.jsonl")
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    assert (row["batch_size"], row["levers"]) == (number, f"batch_size={batch_size};seed=x")
