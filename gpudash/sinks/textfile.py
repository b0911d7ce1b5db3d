"""Write the current values to a file, as the node exporter's textfile collector reads it."""

from contextlib import suppress
from pathlib import Path

from gpudash.errors import RecordingError, UsageError
from gpudash.input_file import open_input
from gpudash.output_file import replace_file
from gpudash.protocol.envelope import Envelope
from gpudash.recording.files import reason, refuse_existing, shown
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.sinks.current import Current
from gpudash.sinks.openmetrics import classic
from gpudash.sinks.sink import Sink
from gpudash.views.time_breakdown import TimeBreakdown

FIRST_LINE = "# gpudash wrote this file\n"
"""By it a file of a run before is known, which may be replaced."""
EVERY_S = 2.0
"""Seconds between two writes."""
SUFFIX = ".prom"
"""The collector reads no other files."""


class Textfile(Sink):
    """Replaces the file every few seconds, and at the end: a reader never sees half of it."""

    every_step, every_reading = False, True
    failed = False

    def __init__(self, target: str, origin: Origin, /, *, force: bool = False) -> None:
        """Write the file for the first time. Raises UsageError and RecordingError."""
        self._path = Path(target)
        if self._path.suffix != SUFFIX:
            raise UsageError(
                f"--to textfile:{shown(target)} is not valid; valid: a name that ends in {SUFFIX}, "
                "as the node exporter reads no other"
            )
        if not force and not _is_ours(self._path):
            refuse_existing(self._path)
        self._current = Current(origin)
        self._due_s = origin.began_s
        self._write()

    def take(self, item: Envelope | Interval, /) -> None:
        """Fold a message or a row, and write now and then. Raises RecordingError."""
        self._current.take(item)
        if self._current.at_s >= self._due_s:
            self._write()

    def close(self, _account: TimeBreakdown | None, /) -> None:
        """Write how the training has ended. Raises RecordingError."""
        self._current.end()
        self._write()

    def abandon(self) -> None:
        """Leave the file as it is."""

    def _write(self) -> None:
        at_s = self._current.at_s
        self._due_s = at_s + EVERY_S
        text = FIRST_LINE + classic(self._current.families(at_s))
        try:
            replace_file(self._path, text.encode())
        except OSError as error:
            self.failed = True
            raise RecordingError(f"cannot write {shown(self._path)}: {reason(error)}") from error


def _is_ours(path: Path) -> bool:
    with suppress(OSError, ValueError), open_input(path) as file:
        return file.read(len(FIRST_LINE)) == FIRST_LINE.encode()
    return False
