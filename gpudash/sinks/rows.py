"""Write rows to standard output or to a file, as they come, for another program."""

import os
import sys
from abc import abstractmethod
from pathlib import Path

from gpudash.errors import ReaderGoneError, RecordingError
from gpudash.protocol.envelope import Envelope
from gpudash.recording.csv_format import cells, columns, csv_lines, json_lines, objects
from gpudash.recording.files import Output, reason, replaces
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.sinks.sink import Sink
from gpudash.views.time_breakdown import TimeBreakdown


class _RowSink(Sink):
    every_step = False
    failed = False

    def __init__(self, target: str, origin: Origin, /, *, force: bool = False) -> None:
        """Write to standard output for the target `-`. Raises RecordingError."""
        self._origin = origin
        self._fd = sys.stdout.fileno()
        self._file: Output | None = None
        if target != "-":
            path = Path(target)
            self._file = Output(path, draft=replaces(path, force=force))
            self._file.take_place()  # it is read while it is written

    def take(self, item: Envelope | Interval, /) -> None:
        self._write(self._text(cells(item, self._origin) if isinstance(item, Interval) else []))

    def close(self, _account: TimeBreakdown | None, /) -> None:
        """Write what precedes the rows, if there was none."""
        if not self.failed:
            self._write(self._text([]))
        if self._file is not None:
            self._file.close()

    def discard(self) -> None:
        if self._file is not None:
            self._file.discard()

    @abstractmethod
    def _text(self, rows: list[list[str]]) -> bytes: ...

    def _write(self, text: bytes) -> None:
        if self._file is not None:
            try:
                self._file.append(text)
            finally:
                self.failed = self._file.failed
            return
        left = memoryview(text)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError as error:
            self.failed = True
            if isinstance(error, BrokenPipeError):
                raise ReaderGoneError("nobody reads the output any more") from error
            raise RecordingError(f"cannot write the output: {reason(error)}") from error


class CsvRows(_RowSink):
    """Writes a CSV."""

    _has_header = False

    def _text(self, rows: list[list[str]]) -> bytes:
        header, self._has_header = [columns()] if not self._has_header else [], True
        return csv_lines([*header, *rows])


class JsonRows(_RowSink):
    """Writes JSON objects, one a line."""

    def _text(self, rows: list[list[str]]) -> bytes:
        return json_lines(objects(rows))
