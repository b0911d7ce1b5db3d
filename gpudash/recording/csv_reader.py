"""Read a recorded CSV, with or without its JSON, as messages and intervals.

A CSV has no single steps. Their times are made to fit the row's sum, median and 95th percentile.
`UNKNOWN` lists what a CSV lacks.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from math import floor, inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gpudash.input_file import open_input
from gpudash.json_input import DamagedError, refuse_nonsense
from gpudash.metrics import METRICS, Kind
from gpudash.protocol.records import Settings
from gpudash.protocol.session import Envelope
from gpudash.protocol.training import Device, Failed, Note, State, TrainingProcess
from gpudash.recording import provenance
from gpudash.recording.files import no_recording
from gpudash.recording.intervals import Interval
from gpudash.recording.log import (
    LOG_VERSION,
    LONGEST_LINE,
    LONGEST_S,
    LineReader,
    Logged,
    LogReader,
    Origin,
    version_of,
)
from gpudash.recording.provenance import Metadata, path_beside
from gpudash.recording.rank_steps import Burst, RankSteps
from gpudash.statistics import total

UNKNOWN = (
    "phases, the slow rank, pauses, comparisons, notes and the training's own output are not in a "
    "CSV"
)
"""The screen's note for a recording without a log."""
NEEDED = {"time_s", "workload", "segment", "levers", "step", "steps"}
NO_VALUES = {
    *("gpu_index", "gpu_uuid", "steps", "untimed_steps"),
    *("steps_per_s", "samples_per_s", "tokens_per_s"),
}
"""Columns that say which GPU it is, or how much was trained."""
NOT_RECORDED = "not recorded"
"""The name of an unknown device."""
NO_JSON = Metadata(started_utc="", interval_s=0.5, command=(), platform="", versions={})
"""The metadata of a recording whose JSON is missing or not gpudash's."""
FEW_STEPS = 10
"""With fewer steps in a row, all are given the median's length: the row may end within a step."""


def log_or_csv(path: Path) -> Path:
    """Prefer the log beside a CSV, which has more, if it is of this version."""
    log = path_beside(path, ".jsonl")
    is_log = path.suffix == ".csv" and log.is_file()
    return log if is_log and version_of(log) in (None, LOG_VERSION) else path


def open_recording(path: Path) -> LineReader:
    """Return the reader of a log or a CSV. Raises UsageError."""
    with suppress(OSError, ValueError), open_input(path) as file:
        if file.read(len("time_s")) == b"time_s":
            return CsvReader(path)
    return LogReader(path)


class CsvReader(LineReader):
    """Reads a CSV. Its time 0 is 0 s."""

    def _begin(self, line: bytes) -> None:
        names: list[str] = []
        with suppress(csv.Error):
            names = next(csv.reader([line.decode("utf-8", "replace")]), [])
        if not set(names) >= NEEDED:
            raise no_recording(self.path)
        self._columns = names
        self._rows: list[dict[str, str]] = []  # of one interval, a row for each GPU
        self._size = 0  # their bytes
        self._before: Interval | None = None
        self._seq = 0
        self._newest: State | None = None
        self._metadata = provenance.read(path_beside(self.path)) or NO_JSON
        seen = re.search(rb",((GPU|MIG)-[^,\n]+),", self._file.peek())
        self._uuid = seen[1].decode("utf-8", "replace") if seen else None
        self._failures = list(self._metadata.failures)
        self.origin = _origin(self._metadata)

    def _messages(self, line: bytes | None) -> Sequence[Logged]:
        if line is None:
            return self._interval([])
        try:
            (values,) = csv.reader([line.decode()], strict=True)
        except csv.Error as error:
            raise DamagedError(str(error)) from error
        row = dict(zip(self._columns, values, strict=True))
        if self._rows and row["time_s"] == self._rows[0]["time_s"]:
            self._size += len(line)
            if self._size > LONGEST_LINE:
                raise DamagedError("more rows at one moment than a machine has GPUs")
            self._rows.append(row)
            return ()
        self._size = len(line)
        return self._interval([row])

    def _interval(self, following: list[dict[str, str]]) -> Sequence[Logged]:
        rows, self._rows = self._rows, following
        found: list[State | Interval] = []
        if rows:
            before, self._before = self._before, _read(rows, self._before)
            found += self._failed_before(self._before.began_s)
            found += [*self._led_to(self._before, before), self._before]
        if not following:
            found += self._failed_before(inf)
        return [each for one in found for each in self._of_ranks(one)]

    def _of_ranks(self, one: State | Interval) -> Iterator[Logged]:
        yield one if isinstance(one, Interval) else self._envelope(one)
        if isinstance(one, State) and one.process is not None and self._before is not None:
            for other in self._before.ranks[1:]:
                device = replace(one.process.device, uuid=other.gpu_uuid)
                process = replace(one.process, device=device)
                yield self._envelope(replace(one, process=process), other.rank)

    def _envelope(self, body: State, rank: int = 0) -> Envelope:
        self._seq += 1
        return Envelope(source="training", rank=rank, seq=self._seq, sent_s=body.at_s, body=body)

    def _failed_before(self, at_s: float) -> list[State]:
        found = []
        while self._failures and self._failures[0].at_s <= at_s:
            one = self._failures.pop(0)
            kind: Any = one.kind if one.kind in ("bad_setting", "out_of_memory") else "error"
            failure = Failed(kind=kind, sentence=one.sentence)
            found.append(State(at_s=one.at_s, phase="failed", failure=failure))
        return found

    def _led_to(self, interval: Interval, before: Interval | None) -> list[State]:
        if before is not None and interval.segment == before.segment:
            return []
        at_s, segment, settings = interval.began_s, interval.segment, interval.settings
        if self._newest is not None and before is not None and _same_worker(interval, before):
            changed = dict(sorted(settings.items() - before.settings.items()))
            self._newest = replace(
                self._newest,
                at_s=at_s,
                segment=segment,
                after_step=before.step,
                changes=changed,
                settings=settings,
            )
            return [self._newest]
        metadata = self._metadata
        kind: Any = "cuda" if self._uuid else "cpu"
        device = Device(kind=kind, name=NOT_RECORDED, uuid=self._uuid)
        self._newest = State(
            at_s=at_s,
            phase="training",
            process=TrainingProcess(
                pid=0,
                ready_s=at_s,
                device=metadata.device or device,
                versions=metadata.versions,
                world_size=interval.world_size,
            ),
            worker=1 if self._newest is None else self._newest.worker + 1,
            segment=segment,
            workload=interval.workload,
            settings=settings,
            notes=(Note(lever=None, text=UNKNOWN),),
        )
        return [self._newest]


def _origin(metadata: Metadata) -> Origin:
    began_utc = datetime.fromtimestamp(0, UTC)
    with suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(metadata.started_utc).astimezone(UTC)
        began_utc = max(found, began_utc) if found.year < 9000 else began_utc
    return Origin(
        began_s=0.0,
        began_utc=began_utc,
        interval_s=metadata.interval_s,
        command=metadata.command,
        platform=metadata.platform,
        machine=metadata.machine,
        versions=metadata.versions,
        set_by=metadata.set_by,
    )


def _read(rows: list[dict[str, str]], before: Interval | None) -> Interval:
    row = {name: cell for name, cell in rows[0].items() if cell}
    ended_s, began_s = float(row["time_s"]), before.ended_s if before else 0.0
    fields = {
        "train_s": ended_s - began_s,
        **row,
        "began_s": began_s,
        "ended_s": ended_s,
        "settings": _pairs(row.get("levers", "")),
        "gpus": [
            {"index": one["gpu_index"], "uuid": one["gpu_uuid"], "values": _values(one, "gpu")}
            for one in {one.get("gpu_uuid"): one for one in rows}.values()
            if one.get("gpu_uuid")
        ],
        "ranks": [RankSteps(step=int(row["step"]), steps=int(row["steps"]))],
    }
    interval = msgspec.convert(fields, Interval, strict=False)  # numbers are text
    if not (
        began_s < ended_s < LONGEST_S
        and 0 <= interval.steps <= interval.step
        and interval.segment >= 0
    ):
        raise DamagedError("not an interval that follows")
    of_rank = {int(one.get("rank") or 0): one for one in reversed(rows)}  # its first GPU's row
    known = {}
    if before is not None and _same_worker(interval, before):
        known = {one.rank: one for one in before.ranks}
    ranks = (_rank(one, interval, known.get(rank)) for rank, one in sorted(of_rank.items()))
    found = replace(interval, ranks=tuple(ranks))
    refuse_nonsense(msgspec.to_builtins(found))
    return found


def _rank(cells: Mapping[str, str], interval: Interval, before: RankSteps | None) -> RankSteps:
    row = {name: cell for name, cell in cells.items() if cell}
    step, steps, length_s = int(row["step"]), interval.steps, interval.ended_s - interval.began_s
    if rate := float(row.get("steps_per_s", 0)):  # more exact than the times of rows
        length_s = steps / rate
    if "steps" not in row and before is not None:  # only rank 0's row has it
        steps = max(step - before.step, 0)
    samples, tokens = (
        round(float(row[per_s]) * length_s) if per_s in row else None
        for per_s in ("samples_per_s", "tokens_per_s")
    )
    samples = samples if steps else 0  # there is no rate without training
    one = RankSteps(
        rank=int(row.get("rank", 0)),
        gpu_uuid=row.get("gpu_uuid"),
        step=step,
        steps=steps,
        samples=samples,
        tokens=tokens,
        total_samples=total((samples, before.total_samples if before else 0)),
        values=_values(row, "step", "phase", "host", "input"),
        transform_ms={name: float(ms) for name, ms in _pairs(row.get("transform_ms", "")).items()},
        instruments_ms=0.0,
    )
    timed = steps - int(row.get("untimed_steps", 0))
    if not 0 <= timed <= steps:
        raise ValueError("not an interval that follows")
    return msgspec.structs.replace(one, bursts=_bursts(one, timed, interval))


def _same_worker(interval: Interval, before: Interval) -> bool:
    return interval.workload == before.workload and interval.step >= before.step


def _values(row: Mapping[str, str], *kinds: Kind) -> dict[str, float | str]:
    return {
        name: cell if metric.csv == "text" else float(cell)
        for name, cell in row.items()
        if cell and (metric := METRICS.get(name)) is not None
        if metric.kind in kinds and metric.csv != "pairs" and name not in NO_VALUES
    }


def _bursts(one: RankSteps, steps: int, interval: Interval) -> tuple[Burst, ...]:
    p50, p95 = (one.values.get(name) for name in ("step_ms_p50", "step_ms_p95"))
    if not steps:
        return ()
    total_ms = interval.train_s * 1e3
    if isinstance(p50, float) and (steps < FEW_STEPS or one.rank):  # `train_s` is rank 0's
        total_ms = steps * p50
    times = [(total_ms / steps, steps)]
    if steps >= FEW_STEPS and isinstance(p50, float) and isinstance(p95, float):
        fast, slow = (steps - 1) // 2, steps - floor(0.95 * (steps - 1))
        middle = steps - fast - slow
        more_ms = total_ms - (fast + middle) * p50 - slow * p95
        if more_ms > 0 and slow > 2:  # the slowest step gets the rest
            times = [(p50, fast + middle), (p95, slow - 1), (p95 + more_ms, 1)]
        elif p50 * fast > -more_ms >= 0:
            times = [(p50 + more_ms / fast, fast), (p50, middle), (p95, slow)]
    return (Burst(interval.ended_s - total_ms / 1e3, tuple(times)),)


def _pairs(cell: str) -> Settings:
    return dict(pair.split("=", 1) for pair in cell.split(";")) if cell else {}
