"""The record file: one CSV row per interval and GPU, on disk as soon as it is known.

Every row is handed to the operating system whole, so a killed process loses no row that was
written; a last line without its line end is torn, and a reader leaves it out. An empty cell
means "not measured". Numbers are in plain decimal notation.
"""

import csv
import io
from collections import ChainMap
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpudash.errors import RecordingError
from gpudash.metrics import METRICS, Metric
from gpudash.recording.files import Output
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import Interval


def decimals(digits: int) -> Callable[[Any], str]:
    """Return what writes a number with so many digits after the point, or nothing for None."""

    def write(value: float | None) -> str:
        if value is None or not isfinite(value):
            return ""
        return f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0 makes -0.0 read 0.0

    return write


def cell(value: Any, digits: int | Literal["text"] | None) -> str:
    """Return a value with so many decimals, or as it is; nothing for None.

    Several by name become `name=value;name=value`.
    """
    if isinstance(value, dict):
        return ";".join(f"{name}={cell(one, digits)}" for name, one in value.items())
    if isinstance(value, float | int) and isinstance(digits, int):
        return decimals(digits)(value)
    return text(value)


def columns() -> dict[str, Metric]:
    """Return what each column holds, in order: new ones are only ever appended."""
    return {name: metric for name, metric in METRICS.items() if metric.csv is not None}


def text(value: object) -> str:
    """Return the value as it is; nothing for None."""
    return "" if value is None else str(value)


class CsvRecording:
    """A record file being written. `rows` counts the rows in it, the header left out."""

    def __init__(
        self, path: Path, *, began_s: float, began_utc: datetime, draft: bool = False
    ) -> None:
        """Create the file and write the header; nothing may be at `path` but for a `draft`.

        A draft is hidden until `take_place` makes it the file at `path`. `began_s` (monotonic)
        and `began_utc` are the same moment: the recording's time 0. Raises RecordingError.
        """
        self.path = path
        self.rows = 0
        self._began_s = began_s
        self._began_utc = began_utc
        self._columns = columns()
        self._output = Output(path, draft=draft)
        try:
            self._output.append(_lines([self._columns]))
        except RecordingError:
            self._output.discard()
            raise

    @property
    def failed(self) -> bool:
        """It could not be written to its end."""
        return self._output.failed

    def take_place(self) -> None:
        """Make a draft the file at `path`, in place of the one there. Raises RecordingError."""
        self._output.take_place()

    def write(self, interval: Interval) -> None:
        """Write the rows of an interval: one for each GPU, or one without.

        Raises RecordingError once, when the file can no longer be written: it is then cut
        back to the last whole row and closed, and further rows are left out in silence.
        """
        if self._output.closed:
            return
        rows = cells(interval, self._columns, self._began_s, self._began_utc)
        self._output.append(_lines(rows), f" after {self.rows} rows")
        self.rows += len(rows)

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        self._output.close()

    def discard(self) -> None:
        """Close the file and remove it; what a draft would have replaced stays."""
        self.close()
        self._output.discard()


def cells(
    interval: Interval, columns: dict[str, Metric], began_s: float, began_utc: datetime
) -> list[list[str]]:
    """Return the rows of an interval: one for each GPU, or one without.

    `began_s` (monotonic) and `began_utc` are the recording's time 0.
    """
    time_s = interval.ended_s - began_s
    row = {
        "time_s": time_s,
        "wall_time_utc": wall_time(began_utc + timedelta(seconds=time_s)),
        "batch_size": interval.settings.get("batch_size"),
        "levers": interval.settings,
        "steps_per_s": interval.steps_per_s,
        "samples_per_s": interval.samples_per_s,
    }
    found = ChainMap(row, interval.host, msgspec.structs.asdict(interval))
    return [
        [cell(one.get(name), column.csv) for name, column in columns.items()]
        for one in (found.new_child(_of_gpu(gpu)) for gpu in interval.gpus or (None,))
    ]


def _of_gpu(gpu: GpuInterval | None) -> dict[str, Any]:
    return {"gpu_index": gpu.index, "gpu_uuid": gpu.uuid} | gpu.values if gpu else {}


def wall_time(moment: datetime) -> str:
    """Return a moment as ISO 8601 in UTC with milliseconds and `Z`."""
    rounded = moment.astimezone(UTC) + timedelta(microseconds=500)  # isoformat cuts off
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()
