"""Stream rows to another program: a recording without files."""

import os
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Literal, TypeAlias

from gpudash.recording.csv_file import cells, columns, csv_lines
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Logged, Origin
from gpudash.sinks.export import json_lines, objects
from gpudash.views.time_breakdown import TimeBreakdown

Form: TypeAlias = Literal["csv", "jsonl"]


class RowStream:
    """Writes rows to a file descriptor, as CSV or as JSON objects.

    A thread of its own writes, so that a slow reader delays nothing.
    """

    every_step = False
    path = Path("-")
    failed = False
    """Always False: the session ends failed recordings, but a lost reader is not its concern."""

    def __init__(self, fd: int, form: Form, origin: Origin) -> None:
        self._fd = fd
        self._form = form
        self._origin = origin
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._writer = Thread(target=self._write, name="gpudash-rows", daemon=True)
        self._writer.start()
        self.rows = 0
        self.error: OSError | None = None
        """The error that ended the stream."""
        if form == "csv":
            self._lines.put(csv_lines([columns()]))

    def take(self, item: Logged) -> None:
        """Write an interval's rows; other messages are ignored."""
        if not isinstance(item, Interval) or item.began_s < self._origin.began_s:
            return
        rows = cells(item, self._origin)
        self._lines.put(csv_lines(rows) if self._form == "csv" else json_lines(objects(rows)))
        self.rows += len(rows)

    def close(self, account: TimeBreakdown | None = None) -> None:  # noqa: ARG002  # as a file's
        """End the stream after the queued rows."""
        self._lines.put(None)

    def abandon(self) -> None:
        """Close the stream: there is nothing to mark incomplete."""
        self.close()

    def discard(self) -> None:
        """Close the stream: written rows cannot be taken back."""
        self.close()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until all rows are written, or the stream has failed."""
        self._writer.join(timeout_s)

    def _write(self) -> None:
        try:
            while (lines := self._lines.get()) is not None:
                left = memoryview(lines)
                while left:
                    left = left[os.write(self._fd, left) :]
        except OSError as error:
            self.error = error
