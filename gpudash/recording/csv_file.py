"""The record file: one CSV row per interval and GPU, on disk as soon as it is known.

Every row is handed to the operating system whole, so a killed process loses no row that was
written; a last line without its line end is torn, and a reader leaves it out. An empty cell
means "not measured". Numbers are in plain decimal notation.
"""

import csv
import io
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

from gpudash.errors import RecordingError
from gpudash.protocol import Settings
from gpudash.recording.files import Output
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import Interval

Cell: TypeAlias = Callable[[Any], str]


def decimals(digits: int) -> Cell:
    """Return what writes a number with so many digits after the point, or nothing for None."""

    def write(value: float | None) -> str:
        if value is None or not isfinite(value):
            return ""
        return f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0 makes -0.0 read 0.0

    return write


def text(value: object) -> str:
    """Return the value as it is; nothing for None."""
    return "" if value is None else str(value)


def transforms(taken_ms: dict[str, float]) -> str:
    """Return milliseconds by name as one cell: `name=1.23;name=0.45`."""
    return ";".join(f"{name}={decimals(2)(value)}" for name, value in taken_ms.items())


STEPS: dict[str, Cell] = {
    "workload": text,
    "segment": text,
    "batch_size": text,
    "levers": text,
    "step": text,
    "steps": text,
    "steps_per_s": decimals(4),
    "samples_per_s": decimals(3),
    "step_ms_p50": decimals(4),
    "step_ms_p95": decimals(4),
    "data_ms": decimals(4),
    "host_ms": decimals(4),
    "device_ms": decimals(4),
    "loss": decimals(6),
}
GPU: dict[str, Cell] = {
    "gpu_index": text,
    "gpu_uuid": text,
    "gpu_util_pct": decimals(1),
    "mem_util_pct": decimals(1),
    "mem_used_mib": decimals(1),
    "sm_active_pct": decimals(1),
    "sm_occupancy_pct": decimals(1),
    "tensor_active_pct": decimals(1),
    "dram_active_pct": decimals(1),
    "pcie_rx_mib_s": decimals(3),
    "pcie_tx_mib_s": decimals(3),
    "power_w": decimals(1),
    "energy_j": decimals(3),
    "temperature_c": decimals(1),
    "sm_clock_mhz": decimals(0),
    "throttle": text,
}
HOST: dict[str, Cell] = {"cpu_pct": decimals(1), "worker_rss_mib": decimals(1)}
INPUT: dict[str, Cell] = {"transform_ms": transforms, "skipped_samples": text}
TRAINING: dict[str, Cell] = {"train_s": decimals(6)}
COLUMNS: tuple[str, ...] = ("time_s", "wall_time_utc", *STEPS, *GPU, *HOST, *INPUT, *TRAINING)
"""The header. New columns are only ever appended: readers rely on names and order."""

_PREFIX = "gpu_"
"""Columns of the GPU that would be ambiguous alone carry it; the fields do not."""


class CsvRecording:
    """A record file being written. `rows` counts the rows in it, the header left out.

    `failed` says that the file could not be written to its end.
    """

    def __init__(
        self, path: Path, *, began_s: float, began_utc: datetime, draft: bool = False
    ) -> None:
        """Create the file and write the header; nothing may be at `path` but for a `draft`.

        A draft is hidden until `take_place` makes it the file at `path`. `began_s` (monotonic)
        and `began_utc` are the same moment: the recording's time 0. Raises RecordingError.
        """
        self.path = path
        self.rows = 0
        self.failed = False
        self._began_s = began_s
        self._began_utc = began_utc
        self._output = Output(path, draft=draft)
        try:
            self._append(_lines([COLUMNS]))
        except RecordingError:
            self._output.discard()
            raise

    def take_place(self) -> None:
        """Make a draft the file at `path`, in place of the one there. Raises RecordingError."""
        try:
            self._output.take_place()
        except RecordingError:
            self.close()
            self.failed = True
            raise

    def write(self, interval: Interval) -> None:
        """Write the rows of an interval: one for each GPU, or one without.

        Raises RecordingError once, when the file can no longer be written: it is then cut
        back to the last whole row and closed, and further rows are left out in silence.
        """
        if self._output.closed:
            return
        rows = cells(interval, self._began_s, self._began_utc)
        self._append(_lines(rows))
        self.rows += len(rows)

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self._output.close()

    def discard(self) -> None:
        """Close the file and remove it; what a draft would have replaced stays."""
        self.close()
        self._output.discard()

    def _append(self, line: bytes) -> None:
        try:
            self._output.append(line, f" after {self.rows} rows")
        except RecordingError:
            self.failed = True
            raise


def cells(interval: Interval, began_s: float, began_utc: datetime) -> list[list[str]]:
    """Return the rows of an interval: one for each GPU, or one without.

    `began_s` (monotonic) and `began_utc` are the recording's time 0.
    """
    return [_cells(interval, gpu, began_s, began_utc) for gpu in interval.gpus or (None,)]


def _cells(
    interval: Interval, gpu: GpuInterval | None, began_s: float, began_utc: datetime
) -> list[str]:
    time_s = interval.ended_s - began_s
    values = {
        "batch_size": interval.settings.get("batch_size"),
        "levers": levers(interval.settings),
    }
    return [
        decimals(3)(time_s),
        wall_time(began_utc + timedelta(seconds=time_s)),
        *(
            cell(values[name] if name in values else getattr(interval, name))
            for name, cell in STEPS.items()
        ),
        *(
            "" if gpu is None else cell(getattr(gpu, name.removeprefix(_PREFIX)))
            for name, cell in GPU.items()
        ),
        *(cell(getattr(interval, name)) for name, cell in (HOST | INPUT | TRAINING).items()),
    ]


def levers(settings: Settings) -> str:
    """Return the settings as one cell, in lever order: `name=value;name=value`."""
    return ";".join(f"{name}={value}" for name, value in settings.items())


def wall_time(moment: datetime) -> str:
    """Return a moment as ISO 8601 in UTC with milliseconds and `Z`."""
    rounded = moment.astimezone(UTC) + timedelta(microseconds=500)  # isoformat cuts off
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()
