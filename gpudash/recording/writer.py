"""A recording as the session sees it: the CSV and, beside it, where it comes from."""

import os
import platform
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from gpudash.errors import RecordingError
from gpudash.protocol import Failed, Started
from gpudash.recording import provenance
from gpudash.recording.csv_file import CsvRecording, wall_time
from gpudash.recording.files import draft_beside, refuse_existing, shown
from gpudash.recording.intervals import Interval
from gpudash.recording.provenance import Failure, Metadata, Segment
from gpudash.views.time_breakdown import TimeBreakdown


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """When and by what a recording is begun."""

    began_s: float
    """Monotonic seconds: the recording's time 0."""
    began_utc: datetime
    """The same moment by the wall clock, with its time zone."""
    interval_s: float
    command: tuple[str, ...]
    """The command line, argument by argument."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    """Of gpudash and whatever the session knows; the worker's come with its start."""


class RecordingWriter:
    """Both files, created at once and kept consistent until `close`.

    Where `force` has something to overwrite, both are hidden drafts until the worker has
    started: a run that never comes to that destroys nothing.

    Every method but `close`, `abandon` and `discard` raises RecordingError once for each file
    that can no longer be written; from then on that file is left as it is, and the run goes on.
    """

    def __init__(self, path: Path, origin: Origin, *, force: bool = False) -> None:
        """Create both files. Without `force`, neither may exist. Raises RecordingError."""
        self.path = path
        self.metadata_path = provenance.path_beside(path)
        if not force:
            refuse_existing(path, self.metadata_path)
        replacing = force and (os.path.lexists(path) or os.path.lexists(self.metadata_path))
        if replacing and self.metadata_path.is_dir():
            raise RecordingError(f"cannot write {shown(self.metadata_path)}: it is a folder")
        self._csv = CsvRecording(
            path, began_s=origin.began_s, began_utc=origin.began_utc, draft=replacing
        )
        self._began_s = origin.began_s
        self._training_failed = False  # and was not restarted since
        self._described = True  # the metadata can still be written
        self._described_at: Path | None = self.metadata_path
        """Where our metadata lies: in its place, as a draft, or nowhere any more."""
        if replacing:
            self._described_at = draft_beside(self.metadata_path)
        self._metadata = Metadata(
            started_utc=wall_time(origin.began_utc),
            interval_s=origin.interval_s,
            command=tuple(provenance.plain(argument) for argument in origin.command),
            platform=platform.platform(),
            versions={"python": platform.python_version()} | origin.versions,
        )
        try:
            self._describe()
        except RecordingError:
            self._csv.discard()
            raise

    @property
    def rows(self) -> int:
        """Rows in the CSV, the header left out."""
        return self._csv.rows

    @property
    def failed(self) -> bool:
        """The CSV can no longer be written."""
        return self._csv.failed

    def started(self, event: Started) -> None:
        """Note the device, the seed and the versions that a worker reports."""
        self._training_failed = False
        seed = event.settings.get("seed")
        self._describe(
            device=event.device,
            seed=int(seed) if seed is not None else None,
            versions=self._metadata.versions | event.versions,
        )

    def training_failed(self, event: Failed) -> None:
        """Note the failure: without another start, the recording will not be complete."""
        self._training_failed = True
        failure = Failure(
            at_s=round(event.at_s - self._began_s, 3), kind=event.kind, sentence=event.sentence
        )
        self._describe(failures=(*self._metadata.failures, failure))

    def write(self, interval: Interval) -> None:
        """Write an interval's rows; one that began before the recording is left out."""
        if self._csv.failed or interval.began_s < self._began_s:
            return
        try:
            self._take_place()
        finally:  # a lost provenance costs no row
            self._csv.write(interval)
        segments = self._metadata.segments
        if not segments or segments[-1].number != interval.segment:
            segment = Segment(
                number=interval.segment,
                began_s=round(interval.began_s - self._began_s, 3),
                workload=interval.workload,
                settings=interval.settings,
            )
            self._describe(segments=(*segments, segment))

    def discard(self) -> None:
        """Remove both files, or their drafts: nothing happened that could be recorded."""
        self._csv.discard()
        self._discard_metadata()

    def abandon(self) -> None:
        """Close the CSV and leave the provenance incomplete: the end was out of order.

        Drafts are removed, as no row is in them.
        """
        if self._is_draft:
            self.discard()
        self._csv.close()
        self._described = False

    def close(self, account: TimeBreakdown | None = None) -> None:
        """Complete both files. Closing again does nothing."""
        with suppress(RecordingError):  # no row is lost by it; there is nobody left to act
            self._take_place()
        whole = not (self._csv.failed or self._training_failed)
        self._csv.close()
        if not self._metadata.complete:
            with suppress(RecordingError):  # the rows are safe; there is nobody left to act
                self._describe(complete=whole, account=account and account.rounded())
        self._described = False

    @property
    def _is_draft(self) -> bool:
        return self._described_at not in (self.metadata_path, None)

    def _take_place(self) -> None:
        """Put drafts in the place of the files that are there."""
        if self._described_at is None or not self._is_draft:
            return
        try:
            self._csv.take_place()
            provenance.move(self._described_at, self.metadata_path)
        except RecordingError:
            self._discard_metadata()
            raise
        self._described_at = self.metadata_path

    def _discard_metadata(self) -> None:
        made, self._described_at = self._described_at, None
        self._described = False
        if made is not None:
            with suppress(OSError):  # gone already, or there is nothing that could be done
                made.unlink()

    def _describe(self, **changes: object) -> None:
        self._metadata = msgspec.structs.replace(self._metadata, **changes)
        if self._described and self._described_at is not None:
            try:
                provenance.write(self._described_at, self._metadata, known_as=self.metadata_path)
            except RecordingError:
                self._described = False
                raise
