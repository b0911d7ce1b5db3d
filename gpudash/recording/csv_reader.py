"""Read the rows of a recorded CSV, with or without its JSON.

A CSV has no single steps: each row's have their mean time.
"""

import csv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpudash.errors import UsageError
from gpudash.input_file import open_input
from gpudash.json_input import DamagedError, refuse_nonsense
from gpudash.metrics import METRICS, Kind
from gpudash.protocol.records import Settings
from gpudash.recording import provenance
from gpudash.recording.door import refuse_damaged
from gpudash.recording.files import no_recording, shown
from gpudash.recording.intervals import Interval
from gpudash.recording.log import (
    LOG_VERSION,
    LONGEST_LINE,
    LONGEST_S,
    LineReader,
    Origin,
    RowReader,
    version_of,
)
from gpudash.recording.provenance import Metadata, path_beside
from gpudash.recording.rank_steps import RankSteps

NEEDED = {"time_s", "workload", "segment", "levers", "step", "steps"}
NO_VALUES = {
    *("gpu_index", "gpu_uuid", "steps", "untimed_steps"),
    *("steps_per_s", "samples_per_s", "tokens_per_s"),
}
"""Columns that say which GPU it is, or how much was trained."""
NO_JSON = Metadata(started_utc="", interval_s=0.5, command=(), platform="", versions={})
"""The metadata of a recording whose JSON is missing or not gpudash's."""


def log_or_csv(path: Path) -> Path:
    """Prefer the log beside a CSV, which has more, if it is of this version."""
    log = path_beside(path, ".jsonl")
    is_log = path.suffix == ".csv" and log.is_file()
    return log if is_log and version_of(log) in (None, LOG_VERSION) else path


def log_of(path: Path) -> Path:
    """Return the log of a recording: itself, or beside its CSV. Raises UsageError."""
    log = path_beside(path, ".jsonl")
    if path.suffix == ".csv" and log.is_file():
        return log
    if _is_csv(path):
        raise UsageError(
            f"{shown(path)} has no log beside it: no {log.name}; "
            "gpudash compare and gpudash export read a CSV alone"
        )
    return path


def open_recording(path: Path) -> LineReader:
    """Return the reader of a log or a CSV. Raises UsageError."""
    return CsvReader(path) if _is_csv(path) else RowReader(path)


def _is_csv(path: Path) -> bool:
    with suppress(OSError, ValueError), open_input(path) as file:
        return file.read(len("time_s")) == b"time_s"
    return False


class CsvReader(LineReader):
    """Reads the rows of a CSV. Its time 0 is 0 s."""

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
        self.metadata = provenance.read(path_beside(self.path)) or NO_JSON
        self.origin = _origin(self.metadata)

    def _messages(self, line: bytes | None) -> Sequence[Interval]:
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

    def _interval(self, following: list[dict[str, str]]) -> Sequence[Interval]:
        """Return the collected interval; begin the next one."""
        rows, self._rows = self._rows, following
        if not rows:
            return ()
        self._before = _read(rows, self._before)
        return (self._before,)


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
    refuse_damaged(found)
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
        values=_values(row, "step", "phase", "host", "input"),
        transform_ms={name: float(ms) for name, ms in _pairs(row.get("transform_ms", "")).items()},
    )
    timed = steps - int(row.get("untimed_steps", 0))
    if not 0 <= timed <= steps:
        raise ValueError("not an interval that follows")
    if not timed:
        return one
    step_ms = {"step_ms": interval.train_s * 1e3 / timed}
    return replace(one, timed=timed, finished_s=interval.ended_s, values=one.values | step_ms)


def _same_worker(interval: Interval, before: Interval) -> bool:
    return interval.workload == before.workload and interval.step >= before.step


def _values(row: Mapping[str, str], *kinds: Kind) -> dict[str, float | str]:
    return {
        name: cell if metric.csv == "text" else float(cell)
        for name, cell in row.items()
        if cell and (metric := METRICS.get(name)) is not None
        if metric.kind in kinds and metric.csv != "pairs" and name not in NO_VALUES
    }


def _pairs(cell: str) -> Settings:
    return dict(pair.split("=", 1) for pair in cell.split(";")) if cell else {}
