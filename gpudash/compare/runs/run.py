"""Read the measured settings of a recording."""

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from gpudash.compare.sweep.file import CELLS
from gpudash.compare.unpaired_t import RunPart, Spread, rate, spread_of_rows
from gpudash.errors import UsageError
from gpudash.input_file import open_input
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Device, State
from gpudash.recording.csv_reader import CsvReader, log_or_csv, open_recording
from gpudash.recording.files import shown
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
    """Rows in their order, without warm-up."""
    core_wait_pct: float | None = None

    @property
    def steps(self) -> int:
        return sum(part.steps for part in self.parts)

    @property
    def steps_per_s(self) -> float | None:
        return rate(self.parts)

    @property
    def spread(self) -> Spread | None:
        """The rate's error; None if unknown."""
        return spread_of_rows(self.parts)


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
    """Read a recording's log, or its CSV without one. Raises UsageError."""
    with suppress(OSError, ValueError), open_input(path) as file:
        if file.readline(1 << 12).startswith(",".join(CELLS).encode()):
            raise UsageError(
                f"{shown(path)} is a sweep: its own table has its intervals; valid: a recording"
            )
    with closing(open_recording(log_or_csv(path))) as reader:
        found = _RowReader()
        for item in reader:
            if isinstance(item, Interval):
                found.row(item)
            elif isinstance(item, Envelope) and item.rank == 0:
                found.message(item.body)
    return RecordedRun(
        path=plain(str(path)),
        circumstances=_circumstances(reader, found),
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

    @property
    def settings(self) -> Settings:
        """Those of the last row."""
        return self._before.settings if self._before else {}

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


def _circumstances(reader: LineReader, found: _RowReader) -> dict[str, str]:
    known = reader.origin.versions | _seed(found.settings)
    if isinstance(reader, CsvReader):
        known |= _of_device(reader.metadata.device)
    elif found.state is not None and found.state.process is not None:
        known |= found.state.process.versions | _of_device(found.state.process.device)
    where = {"machine": reader.origin.machine, "platform": reader.origin.platform}
    return known | {name: text for name, text in where.items() if text}


def _of_device(device: Device | None) -> dict[str, str]:
    if device is None:
        return {}
    return {"device": device.name} | ({"GPU": device.uuid} if device.uuid else {})


def _seed(settings: Settings) -> dict[str, str]:
    return {"seed": settings["seed"]} if "seed" in settings else {}
