"""The log of a recording is read as it was written, or refused if it is damaged."""

import json
import random
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from gpudash.diagnosis.answer import FIGURES_S
from gpudash.errors import GpudashError, UsageError
from gpudash.metrics import METRICS
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.inspections import Profiled, SyncCall
from gpudash.protocol.training import Progress
from gpudash.recording.intervals import Interval, Intervals
from gpudash.recording.log import LONGEST_LINE, Closed, LogReader, Origin, line_of
from gpudash.recording.rank_steps import Burst
from gpudash.sinks.recording import RecordingWriter
from gpudash.views.time_breakdown import TimeBreakdown
from tests.diagnosis.trainings import answered
from tests.lives import paused
from tests.recording.damage import DAMAGE, damaged
from tests.recording.test_csv_format import interval, scripted
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, measured, started
from tests.tui import scenes
from tests.tui.comparisons import VERDICT, compared

ORIGIN = Origin(
    began_s=BEGAN_S,
    began_utc=datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
    interval_s=0.5,
    command=("gpudash", "encdec"),
    versions={"gpudash": "0.1.0"},
)


def recorded(folder):
    """Return the path of a log with everything that a log has."""
    recorder = RecordingWriter(folder / "run.csv", ORIGIN)
    recorder.take(of_training(started(BEGAN_S), 1))
    for row in scripted():
        recorder.take(row)
    recorder.take(of_training(paused(BEGAN_S + 9).after(started(BEGAN_S)), 2))
    recorder.close(TimeBreakdown(wall_s=9.0, phases_s=9.0))
    return recorder.log_path


def of_training(body, seq):
    return Envelope(source="training", seq=seq, sent_s=BEGAN_S, body=body)


def intervals(items):
    return [item for item in items if isinstance(item, Interval)]


def test_a_log_is_read_as_written_to_5_significant_digits(tmp_path):
    reader = LogReader(recorded(tmp_path))
    messages = list(reader)
    assert (reader.origin.began_utc, reader.refused) == (ORIGIN.began_utc, 0)
    assert messages[0] == of_training(started(BEGAN_S), 1)
    assert messages[-2].body == paused(BEGAN_S + 9).after(started(BEGAN_S))
    assert messages[-1] == Closed(account=TimeBreakdown(wall_s=9.0, phases_s=9.0))
    rows = scripted()
    assert len(intervals(messages)) == len(rows)
    for row, found in zip(rows, intervals(messages), strict=True):
        for name in ("began_s", "ended_s", "settings", "segment", "steps", "samples"):
            assert getattr(found, name) == getattr(row, name)
        assert found.values == pytest.approx(row.values, abs=1e-4)


def test_a_profile_is_read_as_written(tmp_path):
    sync = SyncCall(
        at_ns=1_790_000_000_000_000_000, thread=1, file="t.py", line=2, function="f", what=""
    )
    profiled = Profiled(
        at_s=BEGAN_S,
        path="gone.json",
        first_step=1,
        steps=1,
        steps_ms=1.0,
        took_ms=1.0,
        syncs=(sync,),
    )
    recorder = RecordingWriter(tmp_path / "run.csv", ORIGIN)
    recorder.take(of_training(started(BEGAN_S), 1))
    recorder.take(of_training(profiled, 2))
    recorder.close(None)
    assert profiled in [getattr(one, "body", None) for one in LogReader(recorder.log_path)]


def test_an_older_verdict_is_read_with_its_rates(tmp_path):
    """It had a field for each value of both sides, and its sentence was a message of its own."""
    path, rates = recorded(tmp_path), [277.0, 295.0]
    shown = json.loads(msgspec.json.encode(compared(40, verdict=VERDICT)))
    del shown["sides"]
    older = ({**shown, "steps_per_s": rates}, {"type": "Verdict", "text": VERDICT})
    with path.open("a") as log:
        log.writelines(
            f"{json.dumps(['session', 0, seq, BEGAN_S + 9, body])}\n"
            for seq, body in enumerate(older)
        )
    *_, found = (one.body for one in LogReader(path) if isinstance(one, Envelope))
    assert (found.verdict, found.sides) == (VERDICT, {"steps_per_s": tuple(rates)})


def test_a_log_that_grows_is_read_as_it_grows(tmp_path):
    whole = recorded(tmp_path).read_bytes()
    path = tmp_path / "growing.jsonl"
    with path.open("wb", buffering=0) as file:
        end = whole.index(b"\n") + 1
        file.write(whole[:end])
        reader = LogReader(path)
        found = []
        for cut in range(end, len(whole), 97):
            file.write(whole[cut : cut + 97])
            found += reader.read()
    assert found == list(LogReader(tmp_path / "run.jsonl"))


def test_read_returns_at_most_as_many_messages_as_requested(tmp_path):
    reader = LogReader(recorded(tmp_path))
    assert len(reader.read(3)) == 3


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "is not a recording"),
        (b'{"gpudash_log":1', "is not a recording"),
        (b"time_s,steps\n", "is not a recording"),
        (b'{"event":"start","time":1.5}\n', "is not a recording"),
        (b"\xff\xfe\x00\n", "is not a recording"),
        (b"[" * 100_000 + b"\n", "is not a recording"),
        (b"x" * (LONGEST_LINE + 5), "is not a recording"),
        (b'{"gpudash_log":1}\n', "is a log of version 1: the gpudash that wrote it reads it"),
        (b'{"gpudash_log":9}\n', "is a log of version 9: the gpudash that wrote it reads it"),
        (b'{"gpudash_log":2}\n', "is not a recording"),
        (
            line_of(replace(ORIGIN, began_utc=datetime.max.replace(tzinfo=UTC))),
            "is not a recording",
        ),
        (line_of(replace(ORIGIN, interval_s=0.0)), "is not a recording"),
    ],
)
def test_another_file_is_refused_in_a_line(tmp_path, first, why):
    path = tmp_path / "run.jsonl"
    path.write_bytes(first)
    with pytest.raises(UsageError, match=f"run.jsonl {why}"):
        LogReader(path)


def test_a_missing_log_is_refused_in_a_line(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*run\.jsonl: no such file or directory"):
        LogReader(tmp_path / "run.jsonl")
    with pytest.raises(UsageError, match="it is a folder"):
        LogReader(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"ended_s": BEGAN_S + 50},
        {"ended_s": BEGAN_S},
        {"began_s": BEGAN_S + 0.6},
        {"ranks.0.steps": -1},
        {"ranks.0.steps": 7},
        {"ranks.0.steps": 10**300},
        {"ranks.0.values.loss": 1e300},
        {"ranks.0.bursts": [[BEGAN_S, [[-1.0, 5]]]]},
        {"ranks.0.bursts": [[BEGAN_S, [[1.0, 10], [1.0, -5]]]]},
        {"ranks.0.bursts": [[BEGAN_S + 9, [[1.0, 5]]]]},
    ],
)
def test_an_invalid_interval_is_left_out_and_counted(tmp_path, change):
    recorder = RecordingWriter(tmp_path / "run.csv", ORIGIN)
    good = interval(bursts=(Burst(BEGAN_S, ((100.0, 5),)),), values={"loss": 0.5})
    recorder.take(msgspec.convert(msgspec.to_builtins(good), Interval))
    recorder.close()
    first, names, row, last = recorder.log_path.read_text().splitlines()
    envelope = json.loads(row)
    for name, value in change.items():
        way = [int(one) if one.isdigit() else one for one in name.split(".")]
        envelope[4][json.loads(names)[4]["names"].index(way)] = value
    recorder.log_path.write_text("\n".join([first, names, json.dumps(envelope), row, last, ""]))
    reader = LogReader(recorder.log_path)
    assert [found.values["loss"] for found in intervals(reader)] == [0.5]
    assert reader.refused == 1


def test_a_repeated_row_is_read_once(tmp_path):
    path = recorded(tmp_path)
    first, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b"".join(line + line for line in lines))
    reader = LogReader(path)
    assert len(intervals(reader)) == len(scripted())
    assert reader.refused == len(scripted())


@pytest.fixture(scope="module")
def log_bytes(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("log")).read_bytes()


@settings(deadline=None)  # a busy machine is no failure
@given(damage=DAMAGE)
def test_any_damaged_log_is_read_or_refused_in_a_line(tmp_path_factory, log_bytes, damage):
    path = tmp_path_factory.mktemp("damaged") / "run.jsonl"
    path.write_bytes(damaged(log_bytes, damage))
    rows = []
    with suppress(GpudashError):
        rows = intervals(LogReader(path))
    assert all(row.began_s < row.ended_s for row in rows)
    assert [row.began_s for row in rows] == sorted(row.began_s for row in rows)


def test_a_large_log_is_read_in_little_memory(tmp_path):
    path = recorded(tmp_path)
    first, *lines = path.read_bytes().splitlines(keepends=True)
    with path.open("wb") as file:
        file.write(first)
        for _ in range(200):
            file.writelines(lines)
        file.write(b"x" * 8 * LONGEST_LINE)  # a line that never ends
    tracemalloc.start()
    reader = LogReader(path)
    while reader.read():
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * LONGEST_LINE


def test_an_hour_at_300_steps_a_second_is_less_than_5_mb(tmp_path):
    """With one GPU and all its values; steps differ by 3 %, one in a hundred by more.

    The answer is as long as one of several streams, and its figures change as often as they can.
    """
    minutes, pick = 2, random.Random(1)
    fold, recorder = Intervals(BEGAN_S), RecordingWriter(tmp_path / "run.csv", ORIGIN)
    run = Trainer()
    items = [run.start()]
    while run.now_s < BEGAN_S + 60 * minutes:
        steps = [
            step
            for _ in range(15)
            for step in run.step(pick.gauss(3.33, 0.1) * (1 + (pick.random() < 0.01))).steps
        ]
        times = ("copy_ms", "prepare_ms", "forward_ms", "backward_ms", "optimizer_ms", "overlap_ms")
        steps = tuple(measured(step, **dict.fromkeys(times, 0.123456789)) for step in steps)
        progress = msgspec.structs.replace(
            run.progress(*steps),
            loss=pick.random(),
            instruments_ms=pick.random(),
            transform_ms={"decode": pick.random(), "crop": pick.random()},
        )
        assert isinstance(progress, Progress)
        of_gpu = {
            name: pick.random() * 1000
            for name, metric in METRICS.items()
            if (metric.kind, metric.over_time) == ("gpu", "mean")
        }
        uuid = "GPU-12345678-1234-1234-1234-123456789abc"
        items += [progress, host(run.now_s, pick.random() * 1000)]
        items.append(gpu(run.now_s, uuid=uuid, throttle="none", energy_j=run.now_s * 700, **of_gpu))
    for item in items:
        for row in fold.fold(item):
            recorder.take(row)
    shown = answered(scenes.running()).answer
    for number in range(round(60 * minutes / FIGURES_S)):
        said = AnswerShown(at_s=BEGAN_S + number * FIGURES_S, answer=shown)
        recorder.take(Envelope(source="session", seq=number, sent_s=said.at_s, body=said))
    recorder.close()
    rows = intervals(LogReader(recorder.log_path))
    assert sum(row.steps for row in rows) / (rows[-1].ended_s - BEGAN_S) == pytest.approx(
        300, rel=0.05
    )
    assert recorder.log_path.stat().st_size * 60 / minutes < 5e6
