"""Write and read a sweep's file: one CSV row per block, so that a sweep can be resumed.

It is resumed only if the grid, the machine and the active settings in `FILE.json` agree.
"""

import csv
import fcntl
import io
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from gpudash.compare.sweep.grid import BlockRow, Grid, SettingResult, whole_rounds
from gpudash.errors import RecordingError, UsageError
from gpudash.input_file import read_input
from gpudash.json_input import LARGEST, DamagedError, read_json
from gpudash.output_file import write_all
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Device, State
from gpudash.recording import provenance
from gpudash.recording.csv_format import cell, csv_lines
from gpudash.recording.files import Output, reason, replaces, shown
from gpudash.recording.provenance import LONGEST_JSON, path_beside

SCHEMA_VERSION = 1
"""Increased whenever a reader of older files would misread a new one."""
CELLS: dict[str, int | Literal["text"]] = {
    "round": "text",
    "cell": "text",
    "steps": "text",
    "samples": "text",
    "busy_s": 6,
    "steps_per_s": 4,
    "samples_per_s": 3,
    "step_ms": 4,
    "host_ms": 4,
    "gpu_util_pct": 1,
    "cpu_pct": 1,
    "failure": "text",
}
"""Each column's decimals."""
MOST_BYTES = 1 << 26
"""A sweep's file has no more: some hundred bytes a block."""
LATER: dict[str, int | Literal["text"]] = {"failure_kind": "text", "core_wait_pct": 1}
"""Columns after the levers, in order of introduction: older files lack some."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep's grid, machine and versions, and its table once it has ended."""

    schema_version: int = SCHEMA_VERSION
    workload: str
    settings: Settings
    """Levers fixed for the whole sweep, as requested."""
    grid: Grid
    device: Device | None
    """None until the worker has started."""
    machine: str | None = None
    """The machine's network name: a CPU has no UUID."""
    active_settings: Settings | None = msgspec.field(default=None, name="in_force")
    """Active values of levers that not every cell sets, `auto` resolved; None until the worker has
    started."""
    nproc: int | None = None
    """The number of processes of which `device` and `active_settings` are, if cells set several."""
    notes: tuple[str, ...] = ()
    """The worker's notes on these settings at its start …"""
    noted: tuple[str | None, ...] = ()
    """… and the lever of each note."""
    table: tuple[SettingResult, ...] | None = None
    """The results of every setting; None until the sweep has ended."""
    skipped_samples: int | None = None
    """Unreadable samples in all runs of the sweep; None before the first."""
    versions: dict[str, str]
    command: tuple[str, ...]
    set_by: dict[str, str] = {}
    """Setting, by its configuration name → what has set it; other settings are defaults."""

    def on(self, state: State) -> "Provenance":
        varied, process = self.grid.varied, state.process
        assert process is not None, "it trains"
        return replace(
            self,
            device=process.device,
            nproc=process.world_size if self.grid.counts else None,
            active_settings={
                name: value for name, value in state.settings.items() if name not in varied
            },
            notes=tuple(note.text for note in state.notes),
            noted=tuple(note.lever for note in state.notes),
            versions=self.versions | process.versions,
        )

    def agrees_with(self, other: "Provenance") -> bool:
        mine, others = (
            (one.schema_version, one.workload, one.settings, replace(one.grid, rounds=0))
            for one in (self, other)
        )
        return mine == others

    def circumstances(self) -> dict[str, str]:
        # threads and defaults depend on the number of processes
        known, of_count = {}, f", nproc={self.nproc}" if self.nproc else ""
        if self.device is not None:
            known["device" if self.device.uuid else f"device{of_count}"] = _named(self.device)
        if self.machine is not None:
            known["machine"] = f"machine {self.machine}"
        for name, value in (self.active_settings or {}).items():
            known[f"{name}{of_count}"] = f"{name}={value}"
        return known | {name: f"{name} {version}" for name, version in self.versions.items()}


class SweepFile:
    """Appends a row for every block, each in one write. What writes may raise RecordingError."""

    def __init__(self, path: Path, provenance: Provenance, *, force: bool, resume: bool) -> None:
        """Keep rows if `resume`. Raises RecordingError, and UsageError for another sweep's file."""
        self._path = path
        self._provenance = provenance
        self.earlier: Provenance | None = None
        """The provenance of the resumed file."""
        self._levers = sorted(provenance.grid.named)
        self.known: list[BlockRow] = []
        self._there: list[BlockRow] = []
        self._output: Output | None = None
        self._later = [*LATER]
        self._hidden = False
        """Whether the file to replace still exists: nothing has been measured yet."""
        if resume:
            earlier = _read_provenance(path)
            if not earlier.agrees_with(provenance):
                raise UsageError(
                    f"{shown(path)} holds another sweep; --resume needs its very command: "
                    f"{shown(shlex.join(earlier.command))}"
                )
            self.earlier = earlier
            self._provenance = replace(provenance, skipped_samples=earlier.skipped_samples)
            self._fd = _reopen(path)
        else:
            self._hidden = replaces(path, path_beside(path), force=force)
            self._output = Output(path, draft=self._hidden)
            self._fd = self._output.fd
        try:
            _lock(self._fd, path)
            if self._output is None:
                self._there = read_rows(path)
                head = _whole_lines(path).partition(b"\n")[0].decode()
                self._later = [name for name in LATER if name in head.split(",")]
                self.known = whole_rounds(provenance.grid, self._there)
                _cut_torn_line(path)
            else:
                self._write([*CELLS, *self._levers, *self._later])
                self._write_provenance()
        except (UsageError, RecordingError):
            self.close()
            raise

    def started_on(self, state: State) -> None:
        """May raise UsageError too, if earlier blocks ran under other circumstances."""
        self._provenance = self._provenance.on(state)
        if self.earlier is not None and self.earlier.device is not None:
            self._refuse_a_mixture(self.earlier)
        self._cut_unfinished_round()
        self._write_provenance()

    def append(self, row: BlockRow) -> None:
        busy_s = row.busy_s or None
        values: dict[str, object] = {
            **msgspec.structs.asdict(row),
            "failure": " ".join(row.failure.split()) if row.failure else None,  # one line a block
            "steps_per_s": row.steps / busy_s if row.steps and busy_s else None,
            "samples_per_s": row.samples / busy_s if row.samples and busy_s else None,
            "step_ms": busy_s * 1e3 / row.steps if row.steps and busy_s else None,
        }
        changes = self._provenance.grid.changes(row.cell)
        cells = [cell(values[name], digits) for name, digits in CELLS.items()]
        levers = [changes.get(name, "") for name in self._levers]
        later = [cell(values[name], LATER[name]) for name in self._later]
        self._write([*cells, *levers, *later])
        if self._output is not None and not row.refused:
            self._output.take_place()
            self._output, self._hidden = None, False  # the file is worth keeping
            self._write_provenance()

    @property
    def skipped_samples(self) -> int | None:
        return self._provenance.skipped_samples

    def note_skipped(self, samples: int | None) -> None:
        if samples != self.skipped_samples:
            self._provenance = replace(self._provenance, skipped_samples=samples)
            self._write_provenance()

    def conclude(self, table: tuple[SettingResult, ...]) -> None:
        self._provenance = replace(self._provenance, table=table)
        self._write_provenance()

    def close(self) -> None:
        """Remove a new file without blocks, or the next try would need --force."""
        if self._output is None:
            os.close(self._fd)
            return
        self._output.discard()
        if not self._hidden:
            with suppress(OSError):  # not there yet, or cannot be removed
                path_beside(self._path).unlink()

    def _refuse_a_mixture(self, earlier: Provenance) -> None:
        was, now = earlier.circumstances(), self._provenance.circumstances()
        differing = [name for name in was if now.get(name, was[name]) != was[name]]
        if differing:
            before, after = (", ".join(one[name] for name in differing) for one in (was, now))
            raise UsageError(
                f"{shown(self._path)} was measured with {before}; this is {after}: "
                "their blocks cannot stand in one table"
            )

    def _cut_unfinished_round(self) -> None:
        there, self._there = self._there, self.known
        if there == self.known:
            return
        both = zip_longest(there, self.known)
        at, lost = next((at, row) for at, (row, kept) in enumerate(both) if row != kept)
        first = f"\n{lost.round},{lost.cell},".encode()
        with writing(self._path):
            os.truncate(self._path, _whole_lines(self._path).index(first) + 1)
        for row in self.known[at:]:
            self.append(row)

    def _write(self, cells: list[str]) -> None:
        data = csv_lines([cells])
        with writing(self._path):
            write_all(self._fd, data)

    def _write_provenance(self) -> None:
        if not self._hidden:
            provenance.write(path_beside(self._path), self._provenance)


@contextmanager
def writing(path: Path, verb: str = "write") -> Iterator[None]:
    """Turn an OSError in the block into a RecordingError with path and reason."""
    try:
        yield
    except OSError as error:
        raise RecordingError(f"cannot {verb} {shown(path)}: {reason(error)}") from error


def read_rows(path: Path) -> list[BlockRow]:
    """Leave out a torn last line. Raises UsageError."""
    try:
        lines = _whole_lines(path)
    except OSError as error:
        raise UsageError(f"cannot read {shown(path)}: {reason(error)}") from error
    with suppress(ValueError, csv.Error):
        rows = csv.DictReader(io.StringIO(lines.decode(), newline=""))
        if [*(rows.fieldnames or ())][: len(CELLS)] == [*CELLS]:
            return [_row(cells) for cells in rows]
    raise UsageError(f"{shown(path)} is not a sweep's file")


def _row(cells: dict[str, str]) -> BlockRow:
    known = {name: cells[name] or None for name in (*CELLS, *LATER) if name in cells}
    row = msgspec.convert(known, BlockRow, strict=False)
    numbers = (one for one in msgspec.structs.astuple(row) if isinstance(one, int | float))
    if not all(0 <= one < LARGEST for one in numbers):
        raise ValueError("a number that no block has")
    return row


def _read_provenance(path: Path) -> Provenance:
    """May raise UsageError."""
    beside = path_beside(path)
    try:
        return read_json(beside, Provenance, LONGEST_JSON)
    except OSError as error:
        why = f": {reason(error)}"
    except DamagedError as error:
        is_another = isinstance(error.__cause__, msgspec.ValidationError)  # a recording's, say
        why = " is not a sweep's file" if is_another else " is damaged"
    raise UsageError(f"cannot resume {shown(path)}: {shown(beside)}{why}")


def _reopen(path: Path) -> int:
    with writing(path, "record to"):
        try:
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise UsageError(f"cannot resume {shown(path)}: {reason(error)}") from error


def _lock(fd: int, path: Path) -> None:
    """Lock the file against other sweeps until it is closed, even by a crash."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RecordingError(
            f"cannot record to {shown(path)}: another sweep is writing it"
        ) from error
    except OSError:
        pass  # a file system without locks


def _cut_torn_line(path: Path) -> None:
    with writing(path, "record to"):
        os.truncate(path, len(_whole_lines(path)))


def _whole_lines(path: Path) -> bytes:
    data = read_input(path, MOST_BYTES)
    return data[: data.rfind(b"\n") + 1]


def _named(device: Device) -> str:
    return f"{device.name} {device.uuid}" if device.uuid else device.name
