"""The log of a recording is read as it was written, or refused if it is damaged."""

import gzip
import json
import random
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpudash.diagnosis.answer import FIGURES_S
from gpudash.errors import GpudashError, UsageError
from gpudash.metrics import METRICS
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.training import Progress, State, Step
from gpudash.recording.intervals import Interval
from gpudash.recording.log import LONGEST_LINE, Closed, LogReader, Origin, RowReader, line_of
from gpudash.recording.step_columns import StepColumns, columns_of, rounded, steps_of
from gpudash.views.time_breakdown import TimeBreakdown
from tests.diagnosis.trainings import answered
from tests.lives import paused
from tests.recording.damage import DAMAGE, damaged
from tests.recording.record import record, rows_of, sent
from tests.recording.test_csv_format import script
from tests.scripted_run import BEGAN_S, Trainer, gpu, host, started
from tests.tui import scenes

ORIGIN = Origin(
    began_s=BEGAN_S,
    began_utc=datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
    interval_s=0.5,
    command=("gpudash", "encdec"),
    versions={"gpudash": "0.1.0"},
)


ACCOUNT = TimeBreakdown(wall_s=9.0, phases_s=9.0)


def messages():
    """Return the messages of a run, and when it ends."""
    bodies, ended_s = script()
    last = paused(ended_s).after([one for one in bodies if isinstance(one, State)][-1])
    return [*sent([*bodies, last], BEGAN_S)], ended_s


def recorded(folder):
    """Return the path of the log of a run."""
    return record(folder / "run.csv", *messages(), ORIGIN, account=ACCOUNT)


def rows():
    """Return the rows of the run."""
    return rows_of(*messages(), ORIGIN)


def intervals(items):
    return [item for item in items if isinstance(item, Interval)]


def test_a_log_is_read_as_written(tmp_path):
    reader = LogReader(recorded(tmp_path))
    *found, closed = reader
    assert (reader.origin.began_utc, reader.refused) == (ORIGIN.began_utc, 0)
    assert found == [unstamped(one) for one in messages()[0]]
    assert closed == Closed(account=ACCOUNT, ended_s=rows()[-1].ended_s)


def unstamped(envelope):
    """Without what a session says of a step: it does so again."""
    body = envelope.body
    if not isinstance(body, Progress):
        return envelope
    steps = tuple(replace(step, since_break=0, warm=0) for step in body.steps)
    return replace(envelope, body=replace(body, steps=steps))


def test_its_rows_are_those_that_were_written(tmp_path):
    assert intervals(RowReader(recorded(tmp_path))) == rows()


VALUES = st.dictionaries(st.sampled_from(["host_ms", "data_ms", "own_ms"]), st.floats(0.0, 1e4))
COUNTS = st.integers(1, 99)


@st.composite
def steps(draw):
    """Steps of one rank: alike or not, with gaps or without, of which some have more values."""
    number, at_s, found = draw(st.integers(0, 10**9)), draw(st.floats(0.0, 1e7)), []
    for _ in range(draw(st.integers(0, 20))):
        step_ms, count = draw(st.floats(0.01, 1e5)), draw(COUNTS)
        number += count + draw(st.integers(0, 1))
        at_s += count * step_ms / 1e3 + draw(st.sampled_from([0.0, 0.0, 1e-6, 3.0]))
        one = Step(
            step=number,
            segment=draw(st.integers(0, 2)),
            finished_s=at_s,
            step_ms=step_ms,
            values=draw(VALUES),
            count=count,
            samples=draw(st.one_of(st.none(), COUNTS)),
            tokens=draw(st.one_of(st.none(), COUNTS)),
            parts_ms=draw(st.sampled_from([{}, {}, {"backward": (1.25, 2.5)}])),
        )
        found.append(one)
    return tuple(found)


@settings(deadline=None)  # a busy machine is no failure
@given(steps())
def test_steps_are_read_to_a_microsecond_and_never_change_again(of_report):
    once = rounded(Trainer(stamps=False).progress(*of_report))
    assert (rounded(once), steps_of(columns_of(once.steps))) == (once, once.steps)
    for one, found in zip(of_report, once.steps, strict=True):
        assert found.finished_s == pytest.approx(one.finished_s, rel=0, abs=0.51e-6)
        assert found.step_ms == pytest.approx(one.step_ms, rel=0, abs=0.51e-4)
        assert found.values == pytest.approx(one.values, rel=0, abs=0.51e-4)
        kept = ("step", "segment", "count", "samples", "tokens", "parts_ms")
        assert [getattr(found, name) for name in kept] == [getattr(one, name) for name in kept]


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
    assert len(LogReader(recorded(tmp_path)).read(3)) == 3


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
        (b'{"gpudash_log":2}\n', "is a log of version 2: the gpudash that wrote it reads it"),
        (b'{"gpudash_log":3}\n', "is not a recording"),
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


def report_line(**changes):
    """A line of the log: a report of five steps, changed in this."""
    run = Trainer()
    steps = [one for report in run.steps(5) for one in report.steps]
    (envelope,) = sent([run.progress(*steps)], BEGAN_S, seq=9)
    fields = json.loads(line_of(envelope))
    columns = fields[4][1]
    names = StepColumns.__struct_fields__
    for name, value in changes.items():
        columns[names.index(name)] = value
    return json.dumps(fields).encode() + b"\n"


@pytest.mark.parametrize(
    "change",
    [
        {"breaks_us": [0, 0]},
        {"step_ms": [-500_000] * 5},
        {"step_ms": [10**300] * 5},
        {"after_step": -7},
        {"began_us": round((BEGAN_S + 1e6) * 1e6)},
        {"values": {"host_ms": [1, 2, 3]}},
        {"values": {"host_ms": -(10**12)}},
        {"segment": -1},
        {"count": 0},
        {"samples": [1, 2]},
    ],
)
def test_an_invalid_report_is_left_out_and_counted(tmp_path, change):
    path = tmp_path / "run.jsonl"
    start = line_of(*sent([started(BEGAN_S)], BEGAN_S))
    lines = [line_of(ORIGIN), start, report_line(**change), report_line()]
    path.write_bytes(b"".join(lines))
    reader = LogReader(path)
    assert [len(one.body.steps) for one in reader if isinstance(one.body, Progress)] == [5]
    assert reader.refused == 1


@pytest.fixture(scope="module")
def log_bytes(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("log")).read_bytes()


@settings(deadline=None)  # a busy machine is no failure
@given(damage=DAMAGE)
def test_any_damaged_log_is_read_or_refused_in_a_line(tmp_path_factory, log_bytes, damage):
    path = tmp_path_factory.mktemp("damaged") / "run.jsonl"
    path.write_bytes(damaged(log_bytes, damage))
    found = []
    with suppress(GpudashError):
        found = intervals(RowReader(path))
    assert all(row.began_s < row.ended_s for row in found)
    assert [row.began_s for row in found] == sorted(row.began_s for row in found)


def test_a_line_that_never_ends_is_read_in_little_memory(tmp_path):
    path = recorded(tmp_path)
    with path.open("ab") as file:
        file.write(b"x" * 8 * LONGEST_LINE)
    tracemalloc.start()
    reader = LogReader(path)
    while reader.read():
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * LONGEST_LINE


def test_an_hour_at_300_steps_a_second_is_less_than_60_mb_and_packed_20(tmp_path):
    """With one GPU and all its values; steps differ by 3 %, one in a hundred by more.

    One in 15 is measured in full. The answer is as long as one of several streams, and its figures
    change as often as they can.
    """
    minutes, pick = 1, random.Random(1)
    run = Trainer(BEGAN_S)
    bodies, next_s = [run.start()], BEGAN_S
    shown = answered(scenes.running()).answer
    while run.now_s < BEGAN_S + 60 * minutes:
        length_ms = [pick.gauss(3.33, 0.1) * (1 + (pick.random() < 0.01)) for _ in range(15)]
        steps = [step for ms in length_ms for step in run.step(ms).steps]
        steps = [replace(one, values=values_of(pick, at == 7)) for at, one in enumerate(steps)]
        report = replace(run.progress(*steps), loss=pick.random(), instruments_ms=pick.random())
        bodies.append(report)
        if run.now_s >= next_s:
            next_s += 0.2
            of_gpu = {
                name: pick.random() * 1000
                for name, metric in METRICS.items()
                if (metric.kind, metric.over_time) == ("gpu", "mean")
            }
            uuid = "GPU-12345678-1234-1234-1234-123456789abc"
            energy_j = run.now_s * 700
            bodies.append(host(run.now_s, pick.random() * 1000))
            bodies.append(gpu(run.now_s, uuid=uuid, throttle="none", energy_j=energy_j, **of_gpu))
    bodies += [
        AnswerShown(at_s=run.now_s, answer=shown) for _ in range(round(60 * minutes / FIGURES_S))
    ]
    log = record(tmp_path / "run.csv", sent(bodies, BEGAN_S), run.now_s, ORIGIN)
    assert run.number / (run.now_s - BEGAN_S) == pytest.approx(300, rel=0.05)
    assert log.stat().st_size * 60 / minutes < 60e6
    assert len(gzip.compress(log.read_bytes(), 9)) * 60 / minutes < 20e6


def values_of(pick, is_measured):
    """The values of a step: some are measured in each, others in few."""
    known = {"data_ms": pick.random() / 100, "host_ms": pick.gauss(2.7, 0.2)}
    times = ("copy_ms", "prepare_ms", "forward_ms", "backward_ms", "optimizer_ms", "overlap_ms")
    return known | {name: pick.random() * 3 for name in times if is_measured}
