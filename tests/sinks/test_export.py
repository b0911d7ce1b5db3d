"""A log is exported to the files that the run wrote, and to other programs' formats."""

import json
import random

import pytest
from msgspec.structs import replace

from gpudash.errors import RecordingError, UsageError
from gpudash.metrics import METRICS
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import Progress
from gpudash.recording.csv_format import columns
from gpudash.sinks.export import export, export_to
from tests.recording.record import record, sent
from tests.recording.test_csv_format import cells_of, script
from tests.recording.test_log import ORIGIN, recorded
from tests.scripted_run import BEGAN_S, Trainer

OF_STEPS, OF_HOST = ("data_ms", "host_ms", "device_ms"), ("cpu_pct", "worker_rss_mib")
OF_GPU = [
    name for name, metric in METRICS.items() if metric.kind == "gpu" and isinstance(metric.csv, int)
]


def any_size(pick, names):
    return {name: 10 ** pick.uniform(-5, 5) for name in names}


@pytest.fixture
def log(tmp_path):
    return recorded(tmp_path)


def test_csv_and_json_are_those_that_the_run_wrote_to_the_byte(log, tmp_path):
    assert export(log, tmp_path / "again.csv") == 0
    for suffix in (".csv", ".json"):
        again = (tmp_path / "again").with_suffix(suffix)
        assert again.read_bytes() == log.with_suffix(suffix).read_bytes()
    assert not (tmp_path / "again.jsonl").exists()


def test_values_of_any_size_read_the_same_in_both(tmp_path):
    pick, path = random.Random(1), tmp_path / "run.csv"
    bodies, ended_s = script()
    log = record(path, sent([strange(pick, one) for one in bodies], BEGAN_S), ended_s, ORIGIN)
    export(log, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == path.read_bytes()


def strange(pick, body):
    match body:
        case GpuReading():
            return replace(body, values=any_size(pick, OF_GPU))
        case HostReading():
            return replace(body, values=any_size(pick, OF_HOST))
        case Progress(steps=steps):
            steps = tuple(replace(one, values=any_size(pick, OF_STEPS)) for one in steps)
            return replace(body, steps=steps, **any_size(pick, ("loss",)))
    return body


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


def settings_recorded(folder, settings):
    run = Trainer()
    bodies = [run.start(settings), *run.steps(10)]
    return record(folder / "run.csv", sent(bodies, BEGAN_S), run.now_s, ORIGIN)


@pytest.mark.parametrize("batch_size", ["9" * 99, "x", "٣"])
def test_a_batch_size_that_is_none_is_left_out(tmp_path, batch_size):
    log = settings_recorded(tmp_path, {"batch_size": batch_size})
    for name in ("trace", "tensorboard"):
        export_to(log, [(name, str(tmp_path / name))])
    events = json.loads((tmp_path / "trace").read_text())["traceEvents"]
    counted = [one["args"]["value"] for one in events if one["name"] == "batch_size"]
    assert all(one < 10 for one in counted)


@pytest.mark.parametrize("batch_size", ["9" * 30, str(2**63)])
def test_settings_that_no_workload_has_are_exported_as_they_are_or_not_at_all(tmp_path, batch_size):
    log = settings_recorded(tmp_path, {"batch_size": batch_size, "seed": "x"})
    export(log, tmp_path / "again.csv")
    export(log, tmp_path / "rows.jsonl")
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    assert (row["batch_size"], row["levers"]) == (None, f"batch_size={batch_size};seed=x")
