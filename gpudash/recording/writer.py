"""A recording as the session sees it: the CSV and, beside it, where it comes from and the log."""

import os
import platform
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudash.errors import RecordingError
from gpudash.protocol import Envelope, Failed, Started
from gpudash.recording import provenance
from gpudash.recording.csv_file import cells, columns, csv_lines, wall_time
from gpudash.recording.files import Output, replaces
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Closed, Logged, LogLines, Origin, line_of
from gpudash.recording.provenance import Failure, Metadata, Segment
from gpudash.views.time_breakdown import TimeBreakdown


class RecordingWriter:
    """Three files, created at once and kept consistent until `close`.

    Where `force` has something to overwrite, CSV and log are hidden drafts, and the provenance
    is not written, until there is a row: a run that never comes to that destroys nothing.

    Every method but `close`, `abandon` and `discard` raises RecordingError once for each file
    that can no longer be written; from then on that file is left as it is, and the run goes on.
    """

    def __init__(
        self, path: Path, origin: Origin, *, force: bool = False, log: bool = True
    ) -> None:
        """Create the files. Without `force`, none may exist. Raises RecordingError.

        Without `log`, there is none.
        """
        self.path = path
        self.metadata_path = provenance.path_beside(path)
        self.log_path = provenance.path_beside(path, ".jsonl")
        beside = (self.metadata_path, self.log_path) if log else (self.metadata_path,)
        self._hidden = replaces(path, *beside, force=force)
        versions = {"python": platform.python_version()} | origin.versions
        command = tuple(provenance.plain(argument) for argument in origin.command)
        set_by = {key: provenance.plain(by) for key, by in origin.set_by.items()}
        self._origin = msgspec.structs.replace(
            origin, versions=versions, command=command, set_by=set_by
        )
        self.every_step = origin.every_step
        self._training_failed = False  # and was not restarted since
        self._described = True  # the metadata can still be written
        self._written = False  # and are there
        self._metadata = Metadata(
            started_utc=wall_time(origin.began_utc),
            interval_s=origin.interval_s,
            command=command,
            platform=origin.platform,
            machine=origin.machine,
            versions=versions,
            set_by=set_by,
        )
        self.rows = 0
        """In the CSV, the header left out."""
        self._columns = columns()
        self._lines = LogLines()
        self._csv = Output(path, draft=self._hidden)
        try:
            self._csv.append(csv_lines([self._columns]))
            place = self.log_path if log else Path(os.devnull)
            self._log = Output(place, draft=self._hidden or not log)
        except RecordingError:
            self._csv.discard()
            raise
        try:
            self._log.append(line_of(self._origin))
            self._describe()
        except RecordingError:
            self.discard()
            raise

    @property
    def failed(self) -> bool:
        """The CSV can no longer be written."""
        return self._csv.failed

    def take(self, item: Logged) -> None:
        """Write a message or a row; an interval that began before the recording is left out."""
        match item:
            case Interval():
                self._write(item)
            case Closed():
                self.close(item.account)
            case Envelope():
                try:
                    self._log.append(line_of(item))
                finally:
                    if item.rank == 0:
                        self._note(item.body)

    def discard(self) -> None:
        """Remove the files, or their drafts: nothing happened that could be recorded."""
        self._csv.discard()
        self._log.discard()
        if self._written:
            with suppress(OSError):  # gone already, or there is nothing that could be done
                self.metadata_path.unlink()
        self._hidden = self._described = self._written = False

    def abandon(self) -> None:
        """Close the files and leave the provenance incomplete: the end was out of order.

        Drafts are removed, as no row is in them.
        """
        if self._hidden:
            self.discard()
        self._csv.close()
        self._log.close()
        self._described = False

    def close(self, account: TimeBreakdown | None = None) -> None:
        """Complete the files. Closing again does nothing."""
        with suppress(RecordingError):  # no row is lost by it; there is nobody left to act
            self._take_place()
        account = account and account.rounded()
        with suppress(RecordingError):
            self._log.append(self._lines.closed(account))
        self._csv.close()
        self._log.close()
        whole = not (self._csv.failed or self._training_failed)
        if not self._metadata.complete:
            with suppress(RecordingError):
                self._describe(complete=whole, account=account)
        self._described = False

    def _write(self, interval: Interval) -> None:
        if self._csv.closed or interval.began_s < self._origin.began_s:
            return
        try:
            self._take_place()
        finally:  # a lost log or provenance costs no row
            try:
                self._log.append(self._lines.interval(interval))
            finally:
                self._write_rows(interval)
        segments = self._metadata.segments
        is_new = not segments or segments[-1].number != interval.segment
        if is_new and len(segments) < provenance.MOST_LISTED:
            segment = Segment(
                number=interval.segment,
                began_s=round(interval.began_s - self._origin.began_s, 3),
                workload=interval.workload,
                settings=interval.settings,
            )
            self._describe(segments=(*segments, segment))

    def _write_rows(self, interval: Interval) -> None:
        if not self._csv.closed:  # its draft did not take its place
            rows = cells(interval, self._columns, self._origin.began_s, self._origin.began_utc)
            self._csv.append(csv_lines(rows), f" after {self.rows} rows")
            self.rows += len(rows)

    def _note(self, event: object) -> None:
        """Describe a worker's device, seed and versions, or how it failed."""
        if isinstance(event, Started):
            self._training_failed = False
            seed = None
            with suppress(KeyError, ValueError):  # of a log that is not ours
                seed = int(event.settings["seed"])
            self._describe(
                device=event.device,
                seed=seed,
                versions=self._metadata.versions | event.versions,
            )
        elif isinstance(event, Failed):  # without another start, it will not be complete
            self._training_failed = True
            at_s = round(event.at_s - self._origin.began_s, 3)
            failure = Failure(at_s=at_s, kind=event.kind, sentence=event.sentence)
            self._describe(failures=(*self._metadata.failures, failure)[: provenance.MOST_LISTED])

    def _take_place(self) -> None:
        """Put drafts in the place of the files that are there."""
        if not self._hidden:
            return
        self._hidden = False
        try:
            self._csv.take_place()
        except RecordingError:
            self._described = False
            self._log.discard()
            raise
        try:
            self._log.take_place()
        finally:
            self._describe()

    def _describe(self, **changes: object) -> None:
        self._metadata = msgspec.structs.replace(self._metadata, **changes)
        if self._described and not self._hidden:
            try:
                provenance.write(self.metadata_path, self._metadata)
            except RecordingError:
                self._described = False
                raise
            self._written = True
