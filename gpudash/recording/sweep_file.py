"""The file of a sweep: one CSV row per block, so that an interrupted sweep can be finished.

Beside it `FILE.json` holds what is swept and on what device; a sweep is resumed only where
that agrees.
"""

import csv
import io
import os
from pathlib import Path

import msgspec

from gpudash.analysis.sweep import BlockRow, Grid
from gpudash.errors import RecordingError, UsageError
from gpudash.recording.csv_file import decimals, text
from gpudash.recording.files import Output, reason, refuse_existing, shown
from gpudash.recording.metadata import path_beside
from gpudash.records import SCHEMA_VERSION, Device, Settings

CELLS = {
    "round": text,
    "cell": text,
    "steps": text,
    "samples": text,
    "busy_s": decimals(6),
    "steps_per_s": decimals(4),
    "samples_per_s": decimals(3),
    "step_ms": decimals(4),
    "host_ms": decimals(4),
    "gpu_util_pct": decimals(1),
    "cpu_pct": decimals(1),
    "failure": text,
}


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep's file belongs to."""

    schema_version: int = SCHEMA_VERSION
    workload: str
    settings: Settings
    """Levers fixed for the whole sweep, as asked for."""
    grid: Grid
    device: Device | None
    """None until the worker has started."""
    versions: dict[str, str]
    command: tuple[str, ...]

    def agrees_with(self, other: "Provenance") -> bool:
        """Tell whether blocks of both may stand in one table; rounds may be added."""
        return (
            self.workload == other.workload
            and self.settings == other.settings
            and msgspec.structs.replace(self.grid, rounds=0)
            == msgspec.structs.replace(other.grid, rounds=0)
            and (self.device is None or other.device is None or self.device == other.device)
        )


class SweepFile:
    """Appends a row for every block, in one write each."""

    def __init__(self, path: Path, provenance: Provenance, *, force: bool, resume: bool) -> None:
        """Open the file. Raises RecordingError, and UsageError for another sweep's file.

        With `resume`, `known` holds the rows that are there already.
        """
        self._path = path
        self._provenance = provenance
        self._levers = sorted({name for cell in _changes(provenance.grid) for name in cell})
        self.known: list[BlockRow] = []
        if resume:
            earlier = _read_provenance(path)
            if not earlier.agrees_with(provenance):
                raise UsageError(
                    f"{shown(path)} holds another sweep; --resume needs its very command: "
                    f"{' '.join(earlier.command)}"
                )
            self._provenance = msgspec.structs.replace(provenance, device=earlier.device)
            self.known = read_rows(path)
            self._fd = _reopen(path, len(self.known))
        else:
            if not force:
                refuse_existing(path_beside(path))
            output = Output(path, draft=force)
            output.take_place()
            self._fd = output.fd
            self._write([*CELLS, *self._levers])
        self._write_provenance()

    def started_on(self, device: Device, versions: dict[str, str]) -> None:
        """Note the device. Raises UsageError where earlier blocks ran on another."""
        earlier = self._provenance.device
        if earlier is not None and earlier != device:
            raise UsageError(
                f"{shown(self._path)} was measured on {earlier.name}, this is {device.name}: "
                "their blocks cannot stand in one table"
            )
        self._provenance = msgspec.structs.replace(
            self._provenance, device=device, versions=self._provenance.versions | versions
        )
        self._write_provenance()

    def append(self, row: BlockRow) -> None:
        """Write a block. Raises RecordingError."""
        busy_s = row.busy_s or None
        values: dict[str, object] = {
            **msgspec.structs.asdict(row),
            "steps_per_s": row.steps / busy_s if row.steps and busy_s else None,
            "samples_per_s": row.samples / busy_s if row.samples and busy_s else None,
            "step_ms": busy_s * 1e3 / row.steps if row.steps and busy_s else None,
            "gpu_util_pct": row.util_pct,
        }
        levers = self._provenance.grid.changes(row.cell)
        cells = [write(values[name]) for name, write in CELLS.items()]
        self._write([*cells, *(levers.get(name, "") for name in self._levers)])

    def close(self) -> None:
        """Close it; it is complete at every moment."""
        os.close(self._fd)

    def _write(self, cells: list[str]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        data = line.getvalue().encode()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise RecordingError(f"cannot write {shown(self._path)}: {reason(error)}") from error

    def _write_provenance(self) -> None:
        path = path_beside(self._path)
        data = msgspec.json.format(msgspec.json.encode(self._provenance), indent=2) + b"\n"
        try:
            path.write_bytes(data)
        except OSError as error:
            raise RecordingError(f"cannot write {shown(path)}: {reason(error)}") from error


def read_rows(path: Path) -> list[BlockRow]:
    """Return the blocks of a sweep's file; a torn last line is left out. Raises UsageError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read {shown(path)}: {why}") from error
    whole = [line for line in lines if line.endswith("\n")]
    try:
        return [_row(cells) for cells in csv.DictReader(whole)]
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(f"{shown(path)} is not a sweep's file") from error


def _row(cells: dict[str, str]) -> BlockRow:
    def number(name: str) -> float | None:
        return float(cells[name]) if cells[name] else None

    return BlockRow(
        round=int(cells["round"]),
        cell=int(cells["cell"]),
        steps=int(cells["steps"]) if cells["steps"] else None,
        samples=int(cells["samples"]) if cells["samples"] else None,
        busy_s=number("busy_s"),
        host_ms=number("host_ms"),
        util_pct=number("gpu_util_pct"),
        cpu_pct=number("cpu_pct"),
        failure=cells["failure"] or None,
    )


def _read_provenance(path: Path) -> Provenance:
    beside = path_beside(path)
    try:
        return msgspec.json.decode(beside.read_bytes(), type=Provenance)
    except OSError as error:
        raise UsageError(
            f"cannot resume {shown(path)}: {shown(beside)}: {reason(error)}"
        ) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"cannot resume {shown(path)}: {shown(beside)} is damaged") from error


def _reopen(path: Path, rows: int) -> int:
    """Open the file to append, a torn last line cut off."""
    try:
        whole = b"".join(path.read_bytes().splitlines(keepends=True)[: rows + 1])
        os.truncate(path, len(whole))
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError as error:
        raise RecordingError(f"cannot record to {shown(path)}: {reason(error)}") from error


def _changes(grid: Grid) -> list[Settings]:
    return [grid.changes(cell) for cell in range(grid.cells)]
