import json
from datetime import UTC, datetime

import msgspec
import pytest

from gpudash.errors import RecordingError
from gpudash.recording import metadata
from gpudash.recording.metadata import Metadata, path_beside
from gpudash.recording.recording import Origin, Recording
from tests.analysis.scripted_run import BEGAN_S, started
from tests.recording.test_csv_file import interval, scripted

ORIGIN = Origin(
    began_s=BEGAN_S,
    began_utc=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    interval_s=0.5,
    command=("gpudash", "encdec", "--record", "run.csv"),
    versions={"gpudash": "0.1.0", "driver": "570.1"},
)


def described(recorder):
    return msgspec.json.decode(recorder.metadata_path.read_bytes(), type=Metadata)


def test_the_provenance_lies_beside_the_record(tmp_path):
    assert path_beside(tmp_path / "run.csv") == tmp_path / "run.json"
    assert path_beside(tmp_path / "run.txt") == tmp_path / "run.txt.json"
    assert path_beside(tmp_path / "run") == tmp_path / "run.json"


def test_the_provenance_is_there_from_the_start_and_complete_at_the_end(tmp_path):
    recorder = Recording(tmp_path / "run.csv", ORIGIN)
    first = described(recorder)
    assert (first.complete, first.started_utc) == (False, "2026-01-02T03:04:05.000Z")
    assert (first.seed, first.interval_s, first.command) == (None, 0.5, ORIGIN.command)
    assert {"gpudash", "driver", "python"} <= first.versions.keys()
    assert first.device is None
    recorder.started(started(BEGAN_S, {"batch_size": "8", "seed": "7"}))
    assert described(recorder).seed == 7
    assert described(recorder).device.uuid == "GPU-1111"
    assert described(recorder).versions["torch"] == "2.11.0"
    recorder.close()
    recorder.close()
    assert described(recorder).complete


def test_each_segment_is_described_as_soon_as_its_first_row_is_written(tmp_path):
    recorder = Recording(tmp_path / "run.csv", ORIGIN)
    for row in scripted():
        recorder.write(row)
        assert described(recorder).segments[-1].number == row.segment
    recorder.close()
    segments = described(recorder).segments
    assert [segment.number for segment in segments] == [0, 1, 2]
    assert [segment.settings["pipelined"] for segment in segments] == ["off", "on", "off"]
    assert [segment.began_s for segment in segments] == pytest.approx([0.0, 2.2, 4.9])


def test_no_draft_is_left_behind(tmp_path):
    recorder = Recording(tmp_path / "run.csv", ORIGIN)
    recorder.write(interval())
    recorder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.csv", "run.json"]


def test_an_interval_that_began_before_the_recording_is_left_out(tmp_path):
    recorder = Recording(tmp_path / "run.csv", ORIGIN)
    recorder.write(interval(began_s=BEGAN_S - 0.1))
    assert recorder.rows == 0
    recorder.write(interval())
    assert recorder.rows == 1
    recorder.close()


@pytest.mark.parametrize("name", ["run.csv", "run.json"])
def test_neither_file_is_overwritten_unless_forced(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(RecordingError, match=rf"{name} exists; --force overwrites it"):
        Recording(tmp_path / "run.csv", ORIGIN)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"
    Recording(tmp_path / "run.csv", ORIGIN, force=True).close()
    assert json.loads((tmp_path / "run.json").read_text())["complete"]


def test_where_the_provenance_cannot_be_written_nothing_is_left(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RecordingError, match=r"cannot write .*run\.json"):
        Recording(tmp_path / "run.csv", ORIGIN, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_lost_provenance_is_reported_once_and_costs_no_row(tmp_path, monkeypatch):
    recorder = Recording(tmp_path / "run.csv", ORIGIN)

    def refuse(path, contents):
        raise RecordingError("cannot write run.json: the disk is full")

    monkeypatch.setattr(metadata, "write", refuse)
    with pytest.raises(RecordingError, match=r"run\.json"):
        recorder.write(interval())
    recorder.write(interval(segment=1))
    recorder.close()
    assert recorder.rows == 2


def test_a_command_of_any_bytes_can_be_described(tmp_path):
    origin = msgspec.structs.replace(ORIGIN, command=("gpudash", "\udcff", 'a "b"\n'))
    recorder = Recording(tmp_path / "run.csv", origin)
    assert described(recorder).command == ("gpudash", "\ufffd", 'a "b"\n')
    recorder.close()


def test_a_recording_that_lost_its_rows_is_not_complete(tmp_path, monkeypatch):
    recorder = Recording(tmp_path / "run.csv", ORIGIN)

    def full(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpudash.recording.csv_file.os.write", full)
    with pytest.raises(RecordingError, match="the disk is full"):
        recorder.write(interval())
    recorder.write(interval())
    recorder.close()
    assert not described(recorder).complete
