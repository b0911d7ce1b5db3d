"""Read the measured settings of a recording or of a sweep's file."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from gpudash.compare.sweep.file import CELLS, read_provenance, read_rows
from gpudash.compare.sweep.grid import BlockRow
from gpudash.compare.unpaired_t import RunPart, Spread, rate, spread_of_blocks, spread_of_rows
from gpudash.input_file import open_input
from gpudash.protocol.records import Settings
from gpudash.protocol.session import Envelope
from gpudash.protocol.training import Device, State
from gpudash.recording.csv_reader import NOT_RECORDED, CsvReader, log_or_csv, open_recording
from gpudash.recording.intervals import Interval
from gpudash.recording.log import LineReader
from gpudash.recording.provenance import plain
from gpudash.recording.rank_steps import SWITCH_S
from gpudash.statistics import WARMUP_STEPS, mean


class MeasuredSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of a run."""

    workload: str
    settings: Settings
    parts: tuple[RunPart, ...] = ()
    """Rows or blocks, in their order, without warm-up."""
    in_blocks: bool = False
    """Whether other settings were trained between two parts."""
    core_wait_pct: float | None = None
    failure: str | None = None
    """Why it could not be measured, if that is known."""

    @property
    def steps(self) -> int:
        return sum(part.steps for part in self.parts)

    @property
    def steps_per_s(self) -> float | None:
        return rate(self.parts)

    @property
    def spread(self) -> Spread | None:
        return spread_of_blocks(self.parts) if self.in_blocks else spread_of_rows(self.parts)


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a run that are compared."""

    path: str
    circumstances: dict[str, str]
    """By name, such as `torch`; absent if not recorded."""
    measured: tuple[MeasuredSetting, ...]
    refused: int = 0
    """Number of invalid lines in the file."""
    warmup_known: bool = True
    """Whether the number of warm-up steps is recorded: not in a CSV without its log."""


def read_run(path: Path) -> RecordedRun:
    """Read a recording's CSV or log, or a sweep's CSV. Raises UsageError."""
    with suppress(OSError, ValueError), open_input(path) as file:
        if file.readline(1 << 12).startswith(",".join(CELLS).encode()):
            return _sweep(path)
    return _recording(path)


# ── a recording ─────────────────────────────────────────────────────────────────────────


def _recording(path: Path) -> RecordedRun:
    with closing(open_recording(log_or_csv(path))) as reader:
        found = _RowReader()
        for item in reader:
            if isinstance(item, Interval):
                found.row(item)
            elif isinstance(item, Envelope) and item.rank == 0:
                found.message(item.body)
    return RecordedRun(
        path=plain(str(path)),
        circumstances=_of_recording(reader, found.state),
        measured=tuple(found.measured()),
        refused=reader.refused,
        warmup_known=not isinstance(reader, CsvReader),
    )


class _RowReader:
    """Collects the warm rows of each setting, like the table of results."""

    def __init__(self) -> None:
        self.state: State | None = None  # the newest one of a process
        self._warmup_steps = WARMUP_STEPS  # the most of any change, as rows come later than changes
        self._cold_steps = 0
        self._before: Interval | None = None
        self._rows: dict[tuple[object, ...], list[Interval]] = {}

    def message(self, body: object) -> None:
        if isinstance(body, State) and body.process is not None:
            self._warmup_steps = max(self._warmup_steps, body.warmup_steps)
            self.state = body

    def row(self, row: Interval) -> None:
        before, self._before = self._before, row
        stood = row.ended_s - row.began_s - row.train_s >= SWITCH_S
        if stood or before is None or row.segment != before.segment:
            self._cold_steps = self._warmup_steps
        if self._cold_steps > 0:
            self._cold_steps -= 0 if stood else row.steps  # its steps may be from before
        elif row.train_s > 0:
            self._rows.setdefault((row.workload, *row.settings.items()), []).append(row)

    def measured(self) -> Iterator[MeasuredSetting]:
        for rows in self._rows.values():
            yield MeasuredSetting(
                workload=rows[0].workload,
                settings=rows[0].settings,
                parts=tuple(RunPart(row.ranks[0].timed, row.train_s) for row in rows),
                core_wait_pct=mean(_number(row.values.get("core_wait_pct")) for row in rows),
            )


def _number(value: float | str | None) -> float | None:
    return None if isinstance(value, str) else value


def _of_recording(reader: LineReader, state: State | None) -> dict[str, str]:
    known = dict(reader.origin.versions)
    if state is not None and state.process is not None:
        process = state.process
        known |= process.versions | _of_device(process.device) | _seed(state.settings)
    where = {"machine": reader.origin.machine, "platform": reader.origin.platform}
    return known | {name: text for name, text in where.items() if text}


def _of_device(device: Device | None) -> dict[str, str]:
    if device is None or device.name == NOT_RECORDED:
        return {}
    return {"device": device.name} | ({"GPU": device.uuid} if device.uuid else {})


def _seed(settings: Settings) -> dict[str, str]:
    return {"seed": settings["seed"]} if "seed" in settings else {}


# ── a sweep ─────────────────────────────────────────────────────────────────────────────


def _sweep(path: Path) -> RecordedRun:
    rows, recorded = read_rows(path), read_provenance(path)
    fixed = recorded.active_settings or recorded.settings
    machine = {"machine": recorded.machine} if recorded.machine else {}
    by_cell: dict[int, list[BlockRow]] = {}
    for row in rows:
        by_cell.setdefault(row.cell, []).append(row)
    return RecordedRun(
        path=plain(str(path)),
        circumstances=recorded.versions | _of_device(recorded.device) | machine | _seed(fixed),
        measured=tuple(
            _cell(blocks, recorded.workload, fixed | recorded.grid.changes(cell))
            for cell, blocks in sorted(by_cell.items())
            if cell < recorded.grid.cells
        ),
    )


def _cell(blocks: list[BlockRow], workload: str, settings: Settings) -> MeasuredSetting:
    failures = [block.failure for block in blocks if block.failure is not None]
    return MeasuredSetting(
        workload=workload,
        settings=settings,
        parts=tuple(RunPart(one.steps, one.busy_s) for one in blocks if one.steps and one.busy_s),
        in_blocks=True,
        core_wait_pct=mean(block.core_wait_pct for block in blocks),
        failure=failures[-1] if failures else None,
    )
