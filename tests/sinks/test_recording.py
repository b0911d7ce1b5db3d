import csv
import errno
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpudash.diagnosis.report import report_of
from gpudash.errors import ExistsError, RecordingError
from gpudash.protocol.answer import Answer, AnswerShown, Gain, Try, Without
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.session import Slope
from gpudash.protocol.training import State
from gpudash.recording import provenance
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.recording.provenance import Failure, Metadata, path_beside
from gpudash.sinks.active import ActiveSinks
from gpudash.sinks.recording import RecordingWriter
from gpudash.views.time_breakdown import TimeBreakdown
from tests.lives import failed, starting
from tests.recording.record import sent
from tests.recording.test_csv_format import interval, scripted
from tests.scripted_run import BEGAN_S, PLAN, Trainer, started

ENDED = State(at_s=BEGAN_S + 2, phase="finished")
"""The end of a training that never started."""
ORIGIN = Origin(
    began_s=BEGAN_S,
    began_utc=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    interval_s=0.5,
    command=("gpudash", "encdec", "--record", "run.csv"),
    versions={"gpudash": "0.1.0", "driver": "570.1"},
)


def take(recorder, body):
    recorder.take(body if isinstance(body, Interval) else of_training(body))


def of_training(body, seq=0):
    return Envelope(source="training", seq=seq, sent_s=BEGAN_S, body=body)


def recorder_of(folder):
    return RecordingWriter(folder / "run.csv", ORIGIN)


@pytest.fixture
def recorder(tmp_path):
    return recorder_of(tmp_path)


@pytest.fixture
def recordings():
    return ActiveSinks(tell=lambda error: pytest.fail(str(error)))


def described(recorder):
    return msgspec.json.decode(recorder.metadata_path.read_bytes(), type=Metadata)


def begin(recordings, recorder, began_s, account):
    origin = replace(ORIGIN, began_s=began_s)
    recordings.begin("recording", str(recorder.path), recorder, origin, account)


def tell(recordings, bodies):
    for one in sent(bodies, BEGAN_S):
        recordings.take(one)


def test_the_provenance_lies_beside_the_record(tmp_path):
    assert path_beside(tmp_path / "run.csv") == tmp_path / "run.json"
    assert path_beside(tmp_path / "run.txt") == tmp_path / "run.txt.json"
    assert path_beside(tmp_path / "run") == tmp_path / "run.json"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("folder", [".", "..", "/"])
def test_a_folder_of_any_name_is_refused_in_a_line(folder, force):
    with pytest.raises(RecordingError, match="it is a folder"):
        RecordingWriter(Path(folder), ORIGIN, force=force)


def test_the_provenance_is_there_from_the_start_and_complete_at_the_end(recorder):
    first = described(recorder)
    assert (first.complete, first.started_utc) == (False, "2026-01-02T03:04:05.000Z")
    assert (first.seed, first.interval_s, first.command) == (None, 0.5, ORIGIN.command)
    assert {"gpudash", "driver", "python"} <= first.versions.keys()
    assert first.device is None
    take(recorder, started(BEGAN_S, {"batch_size": "8", "seed": "7"}))
    assert described(recorder).seed == 7
    assert described(recorder).device.uuid == "GPU-1111"
    assert described(recorder).versions["torch"] == "2.11.0"
    recorder.close()
    recorder.close()
    assert described(recorder).complete


def test_the_newest_answer_is_in_the_provenance_as_why_prints_it(recorder):
    newest = Answer(
        limit="data",
        title="input-bound",
        step_ms=10.0,
        tries=(Try("num_workers", "4", "more workers", "2", Gain(5.0, 20.0, "9 ms a step")),),
        parts=(Without("data", 3.0, 4.0, 6.5),),
        slopes=(Slope(part="loader", slope=1.0, low=0.9, high=1.1),),
        is_proven=True,
    )
    lever_has_moved = None
    for shown in (Answer(limit="gpu", title="GPU-bound"), newest, lever_has_moved):
        take(recorder, AnswerShown(at_s=BEGAN_S + 1, answer=shown))
    recorder.close()
    assert described(recorder).answer == report_of(newest)


def test_each_segment_is_described_as_soon_as_its_first_row_is_written(recorder):
    for row in scripted():
        take(recorder, row)
        assert described(recorder).segments[-1].number == row.segment
    recorder.close()
    segments = described(recorder).segments
    assert [segment.number for segment in segments] == [0, 1, 2]
    assert [segment.settings["pipelined"] for segment in segments] == ["off", "on", "off"]
    assert [segment.began_s for segment in segments] == pytest.approx([0.0, 2.2, 4.9])


def test_a_recording_begun_in_mid_run_has_the_rows_from_then_on(tmp_path, recordings):
    recorder, run = RecordingWriter(tmp_path / "run.csv", ORIGIN), Trainer()
    tell(recordings, [run.start(), *run.steps(10)])
    begin(recordings, recorder, run.now_s, account(0.0))
    tell(recordings, run.steps(25))
    assert recorder.rows == 1  # the next one may still get a reading
    recordings.close(run.now_s, account(1.0))
    with recorder.path.open(newline="") as file:
        assert [row["steps"] for row in csv.DictReader(file)] == ["10", "10", "5"]


def test_a_recording_ends_with_the_row_in_which_it_was_ended(tmp_path, recordings):
    recorder, run = RecordingWriter(tmp_path / "run.csv", ORIGIN), Trainer()
    begin(recordings, recorder, BEGAN_S, account(0.0))
    tell(recordings, [run.start(), *run.steps(14)])
    recordings.end("recording", run.now_s, account(1.0))
    assert not described(recorder).complete
    tell(recordings, run.steps(60))
    assert (recorder.rows, described(recorder).complete) == (2, True)


@pytest.mark.parametrize(
    ("old", "said"),
    [
        (["run.csv"], r"^\S*run\.csv exists"),
        (["run.json"], r"^cannot record to \S*run\.csv: \S*run\.json exists"),
        (["run.csv", "run.json"], r"^\S*run\.csv exists"),
    ],
)
def test_neither_file_is_overwritten_unless_forced_and_the_requested_one_is_named_first(
    tmp_path, old, said
):
    for name in old:
        (tmp_path / name).write_text("precious")
    with pytest.raises(ExistsError, match=f"{said}; --force overwrites it$") as refused:
        RecordingWriter(tmp_path / "run.csv", ORIGIN)
    assert refused.value.fact.endswith(f"{old[0]} exists")  # as the dashboard says it
    assert contents(tmp_path) == dict.fromkeys(old, "precious")
    RecordingWriter(tmp_path / "run.csv", ORIGIN, force=True).close()
    assert json.loads((tmp_path / "run.json").read_text())["complete"]


OLD = {"run.csv": "precious rows", "run.json": "their provenance"}


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def forced(folder, old):
    for name in old:
        (folder / name).write_text(OLD[name])
    return RecordingWriter(folder / "run.csv", ORIGIN, force=True)


OLD_FILES = pytest.mark.parametrize("old", [["run.csv"], ["run.json"], ["run.csv", "run.json"]])


@OLD_FILES
@pytest.mark.parametrize("end", [RecordingWriter.discard, RecordingWriter.abandon])
def test_force_destroys_nothing_if_no_worker_started(tmp_path, old, end):
    recorder = forced(tmp_path, old)
    visible = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert visible == set(old)
    end(recorder)
    assert contents(tmp_path) == {name: OLD[name] for name in old}
    recorder.discard()
    recorder.close()
    assert contents(tmp_path) == {name: OLD[name] for name in old}


@OLD_FILES
@pytest.mark.parametrize("begins", ["write", "close"])
def test_force_replaces_both_files_once_there_is_something_to_replace_them(tmp_path, old, begins):
    recorder = forced(tmp_path, old)
    assert (recorder.path, recorder.metadata_path) == (tmp_path / "run.csv", tmp_path / "run.json")
    take(recorder, started(BEGAN_S))
    assert all((tmp_path / name).read_text() == OLD[name] for name in old)  # no row yet
    if begins == "write":
        take(recorder, interval())
    else:
        recorder.close()
    assert (tmp_path / "run.csv").read_text().startswith("time_s,")
    assert described(recorder).started_utc == "2026-01-02T03:04:05.000Z"
    recorder.close()
    assert sorted(contents(tmp_path)) == ["run.csv", "run.json", "run.jsonl"]
    assert described(recorder).complete


@pytest.mark.parametrize("name", ["run.csv", "run.json"])
def test_drafts_that_cannot_take_their_place_are_reported_and_removed(tmp_path, name):
    recorder = forced(tmp_path, OLD)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(RecordingError, match=rf"cannot .*{name}: it is a folder"):
        take(recorder, interval())
    assert recorder.failed == (name == "run.csv")
    take(recorder, interval())
    recorder.close()
    assert recorder.rows == (2 if name == "run.json" else 0)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"run.csv", "run.json"} | ({"run.jsonl"} if name == "run.json" else set())
    if name == "run.csv":
        recorder.discard()
        assert (tmp_path / "run.json").read_text() == OLD["run.json"]


def test_an_abandoned_recording_keeps_its_rows_and_stays_incomplete(recorder):
    take(recorder, interval())
    recorder.abandon()
    take(recorder, interval())
    recorder.close()
    assert recorder.rows == 1
    assert not described(recorder).complete


def out_of_memory(at_s):
    return failed(at_s, "out of memory with batch_size=64", "out_of_memory", turns=("fails",))


def test_a_recording_that_a_failure_ended_is_not_complete_and_says_why(recorder):
    take(recorder, interval())
    take(recorder, out_of_memory(BEGAN_S + 1.23456))
    recorder.close(account(1.0))
    found = described(recorder)
    assert (found.complete, found.account) == (False, account(1.0))
    sentence = "out of memory with batch_size=64"
    assert found.failures == (Failure(at_s=1.235, kind="out_of_memory", sentence=sentence),)
    assert found.schema_version == 2


FILES = ["run.csv", "run.json", "run.jsonl"]


@pytest.mark.parametrize(
    ("what", "events", "left"),
    [
        ("it failed", [failed(BEGAN_S + 1)], []),
        ("it failed once it had started", [started(BEGAN_S), failed(BEGAN_S + 1)], []),
        ("it never started", [ENDED], []),
        ("nor did the next one", [started(BEGAN_S), starting(BEGAN_S + 1, PLAN), ENDED], []),
        ("nothing is known of it", [], FILES),
        ("it went well", [started(BEGAN_S), replace(started(BEGAN_S), phase="finished")], FILES),
        ("the next one started", [failed(BEGAN_S + 1), started(BEGAN_S + 2)], FILES),
    ],
)
def test_without_a_row_only_a_training_that_went_well_leaves_files(
    tmp_path, what, events, left, recorder
):
    for event in events:
        take(recorder, event)
    recorder.close()
    assert sorted(contents(tmp_path)) == left, what


def test_a_recording_whose_training_was_restarted_after_a_failure_is_complete(recorder):
    take(recorder, out_of_memory(BEGAN_S + 1))
    take(recorder, started(BEGAN_S + 2))
    recorder.close()
    assert described(recorder).complete
    assert [failure.at_s for failure in described(recorder).failures] == [1.0]


def test_where_the_provenance_cannot_be_written_nothing_is_left(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RecordingError, match=r"cannot write .*run\.json"):
        RecordingWriter(tmp_path / "run.csv", ORIGIN, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_lost_provenance_is_reported_once_and_costs_no_row(monkeypatch, recorder):

    def refuse(*_, **__):
        raise RecordingError("cannot write run.json: the disk is full")

    monkeypatch.setattr(provenance, "write", refuse)
    with pytest.raises(RecordingError, match=r"run\.json"):
        take(recorder, interval())
    take(recorder, interval(segment=1))
    recorder.close()
    assert recorder.rows == 2


def test_a_command_of_any_bytes_can_be_described(tmp_path):
    origin = msgspec.structs.replace(ORIGIN, command=("gpudash", "\udcff", 'a "b"\n'))
    recorder = RecordingWriter(tmp_path / "run.csv", origin)
    assert described(recorder).command == ("gpudash", "\ufffd", 'a "b"\n')
    recorder.close()


def test_a_recording_whose_rows_are_lost_when_it_is_closed_is_not_complete(monkeypatch, recorder):
    """A network file system may report a full disk only on close."""
    take(recorder, interval())
    close = os.close

    def full(fd):
        close(fd)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("gpudash.recording.files.os.close", full)
    recorder.close()
    assert not described(recorder).complete
    monkeypatch.undo()


def account(wall_s, paused_s=0.0):
    return TimeBreakdown(wall_s=wall_s, phases_s=wall_s - paused_s, paused_s=paused_s)


def test_the_account_is_unknown_until_the_end(recorder):
    take(recorder, interval())
    assert described(recorder).account is None
    recorder.close(account(1.23456789))
    assert described(recorder).account == account(1.234568)
    assert list(json.loads(recorder.metadata_path.read_text())["account"]) == [
        "wall_s",
        "phases_s",
        "data_s",
        "paused_s",
        "switching_s",
        "restarting_s",
        "unattributed_s",
        "evaluation_s",
        "checkpoint_s",
        "profile_s",
    ]


def test_each_recording_accounts_for_its_own_time_and_failures(tmp_path, recordings):
    first, second = (RecordingWriter(tmp_path / f"{name}.csv", ORIGIN) for name in ("a", "b"))
    begin(recordings, first, BEGAN_S, account(10.0))
    run = Trainer()
    tell(recordings, [run.start(), *run.steps(78)])
    begin(recordings, second, BEGAN_S + 4, account(13.5, paused_s=1.0))
    tell(recordings, run.steps(22))
    tell(recordings, [out_of_memory(BEGAN_S + 5)])
    recordings.end("recording", BEGAN_S + 7, account(17.0, paused_s=1.0))
    recordings.close(run.now_s, account(99.0))
    of_each = [described(one) for one in (first, second)]
    assert [one.account for one in of_each] == [account(3.5, paused_s=1.0), account(3.5)]
    assert [(one.complete, len(one.failures)) for one in of_each] == [(True, 0), (False, 1)]


def test_a_name_with_a_line_break_is_shown_in_one_line(tmp_path, recordings):
    begin(recordings, RecordingWriter(tmp_path / "a\nb.csv", ORIGIN), BEGAN_S, account(10.0))
    assert recordings.shown.path.isprintable()
    recordings.close(BEGAN_S, account(10.0))


def test_where_no_step_was_recorded_there_is_no_account(recorder, recordings):
    begin(recordings, recorder, BEGAN_S, account(10.0))
    recordings.close(BEGAN_S, account(10.0))
    assert described(recorder).complete
    assert described(recorder).account is None
