"""A new time of a step needs one line in the table and one where it is measured."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import torch

from docs.make_reference import metrics
from gpudash.instrument.reporter import Reports, instruments
from gpudash.instrument.wire import StepReport, encoded
from gpudash.metrics import METRICS, Metric
from gpudash.present.axes import TimeView
from gpudash.present.ranks import columns_of
from gpudash.present.readings import readings
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Phase, State
from gpudash.recording.csv_format import columns
from gpudash.recording.csv_reader import open_recording
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.run.fold import Fold
from gpudash.run.replayed import replayed
from gpudash.sinks.export import export
from tests.lives import in_process
from tests.recording.record import record
from tests.scripted_run import PLAN, started

TOKENISING = Metric(
    "step",
    "ms",
    "Time of the tokeniser.",
    in_steps="each",
    csv=2,
    label="tokenising",
    spark=True,
    rank="token ms",
)
STEPS = 12
RANKS = 2


def train(rank: int) -> list[StepReport]:
    """Train as a script does, which knows how long its tokeniser took; return the reports."""
    sent: list[StepReport] = []
    phases = (Phase(name="forward", label="forward", lane="train"),)
    clock, losses = instruments(torch.device("cpu"), phases)
    reports = Reports(clock, losses, lambda: ({}, 0), lambda: None, sent.append)
    for step in range(1, STEPS + 1):
        clock.begin()("forward")
        clock.end(step, samples=4, values={"tokenise_ms": 1.5 + rank})  # the line that measures it
        reports.send()
    return sent


def start(rank: int, at_s: float) -> State:
    own = started(at_s)
    device = msgspec.structs.replace(own.process.device, uuid=f"GPU-{rank}")
    return in_process(own, pid=42 + rank, device=device, world_size=RANKS)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Envelope]:
    """What a session is told of a training of two ranks."""
    monkeypatch.setitem(METRICS, "tokenise_ms", TOKENISING)  # the line in the table
    reports = [train(rank) for rank in range(RANKS)]
    lines = [
        encoded(report, rank, seq, report.until_s)
        for rank, of_rank in enumerate(reports)
        for seq, report in enumerate(of_rank, 1)
    ]
    began_s = min(report.until_s for of_rank in reports for report in of_rank) - 1.0
    starts = [
        Envelope(source="training", rank=rank, seq=0, sent_s=began_s, body=start(rank, began_s))
        for rank in range(RANKS)
    ]
    return starts + [msgspec.json.decode(line, type=Envelope) for line in lines]


def recorded(told: list[Envelope], path: Path) -> None:
    began_s = told[0].sent_s
    origin = Origin(began_s=began_s, began_utc=datetime.now(UTC), interval_s=1000.0, command=())
    record(path, told, told[-1].sent_s + 1, origin)


def test_a_new_time_is_in_the_snapshot_the_chart_and_the_ranks_table(told: list[Envelope]) -> None:
    fold = Fold(PLAN, told[0].sent_s)
    last = next(one for one in reversed(told) if not one.rank)
    body = msgspec.structs.replace(last.body, until_s=last.body.until_s + 1.0, steps=())
    later = msgspec.structs.replace(last, seq=last.seq + 1, body=body)  # its charts' ticks are over
    for one in [*told, later]:
        item = fold.take(fold.stamp(one))
        if item is not None:
            fold.fold(item)
    snapshot = fold.snapshot(told[-1].sent_s + 1)
    assert [row.values["tokenise_ms"] for row in snapshot.ranks] == [1.5, 2.5]
    assert snapshot.results[0].values["tokenise_ms"] == 1.5
    column = columns_of(snapshot)["token ms"]
    assert [column(row) for row in snapshot.ranks] == ["1.50", "2.50"]
    past = {round(ms, 6) for ms in snapshot.series.of("tokenise_ms") if ms is not None}
    assert past == {1.5}
    assert "tokenising" in [one.label for one in readings(snapshot, TimeView())]


def test_a_new_time_is_in_every_ranks_row_of_a_recording_and_in_its_replay(
    told: list[Envelope], tmp_path: Path
) -> None:
    path = tmp_path / "run.csv"
    recorded(told, path)
    with path.open(encoding="utf-8") as file:
        rows = csv.DictReader(file)
        assert [*(rows.fieldnames or ())] == [*columns()]
        assert [*columns()][-1] == "tokenise_ms"
        assert [row["tokenise_ms"] for row in rows] == ["1.50", "2.50"]
    (row,) = (
        one for one in open_recording(path.with_suffix(".jsonl")) if isinstance(one, Interval)
    )
    assert [one.values["tokenise_ms"] for one in row.ranks] == [1.5, 2.5]
    export(path.with_suffix(".jsonl"), tmp_path / "rows.jsonl")
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["tokenise_ms"] for line in lines] == [1.5, 2.5]
    for source in (path.with_suffix(".jsonl"), path):
        shown = replayed(source).snapshot
        assert [one.values["tokenise_ms"] for one in shown.ranks] == pytest.approx([1.5, 2.5])


def test_a_new_time_is_in_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "tokenise_ms", TOKENISING)
    line = "| `tokenise_ms` | ms | Time of the tokeniser. | mean | 2 | sparkline | each | rank 0 |"
    assert line in metrics()
