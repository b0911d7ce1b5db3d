"""Rows for a program that reads them as they come: a recording without files."""

import os
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Literal, TypeAlias

from gpudash.recording.csv_file import cells, columns, csv_lines
from gpudash.recording.export import json_lines, objects
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Logged, Origin
from gpudash.views.time_breakdown import TimeBreakdown

Form: TypeAlias = Literal["csv", "jsonl"]


class RowStream:
    """Writes to a descriptor what RecordingWriter writes to a CSV, or each row as an object.

    It writes on a thread of its own: a reader that is slow holds nothing up.
    """

    every_step = False
    path = Path("-")
    failed = False
    """A recording that fails is ended by the session; who reads here is not its business."""

    def __init__(self, fd: int, form: Form, origin: Origin) -> None:
        self._fd = fd
        self._form = form
        self._origin = origin
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._writer = Thread(target=self._write, name="gpudash-rows", daemon=True)
        self._writer.start()
        self.rows = 0
        self.error: OSError | None = None
        """Why nothing more can be written."""
        if form == "csv":
            self._lines.put(csv_lines([columns()]))

    def take(self, item: Logged) -> None:
        """Write a row; the rest of a log is left out."""
        if not isinstance(item, Interval) or item.began_s < self._origin.began_s:
            return
        origin = self._origin
        if self._form == "csv":
            self._lines.put(csv_lines(cells(item, columns(), origin.began_s, origin.began_utc)))
        else:
            self._lines.put(json_lines(objects(item, origin)))
        self.rows += len(item.ranks or item.gpus) or 1

    def close(self, account: TimeBreakdown | None = None) -> None:  # noqa: ARG002  # as a file's
        """End it after the rows that are there."""
        self._lines.put(None)

    def abandon(self) -> None:
        """See `close`: there is nothing to mark incomplete."""
        self.close()

    def discard(self) -> None:
        """See `close`: what was written is read."""
        self.close()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until all is written that there is to be, or cannot be."""
        self._writer.join(timeout_s)

    def _write(self) -> None:
        try:
            while (lines := self._lines.get()) is not None:
                left = memoryview(lines)
                while left:
                    left = left[os.write(self._fd, left) :]
        except OSError as error:
            self.error = error
