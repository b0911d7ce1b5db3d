"""Write the three files of a recording: CSV, provenance and log."""

import os
import platform
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from gpudash.diagnosis.report import report_of
from gpudash.errors import RecordingError
from gpudash.protocol.answer import Answer, AnswerShown
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import State
from gpudash.recording import provenance
from gpudash.recording.csv_format import cells, columns, csv_lines, wall_time
from gpudash.recording.files import Output, replaces, shown
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Closed, Logged, Origin, line_of
from gpudash.recording.provenance import Failure, Metadata, Segment
from gpudash.sinks.sink import Sink
from gpudash.snapshot import RecordingStatus
from gpudash.views.time_breakdown import TimeBreakdown


class RecordingWriter(Sink):
    """Three files, created together and kept consistent until `close`.

    If `force` would overwrite files, CSV and log are hidden drafts until the first row: a run
    without a row destroys nothing. Every method but `close`, `abandon` and `discard` raises
    RecordingError once for each file that fails.
    """

    apart = False
    """A row is in its file before a view can fail on the messages after it."""

    def __init__(
        self, target: Path | str, origin: Origin, /, *, force: bool = False, log: bool = True
    ) -> None:
        """Without `force`, none of the files may exist. Raises RecordingError."""
        self.path = path = Path(target)
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
        self._state: State | None = None  # the newest one of rank 0
        self._answer: Answer | None = None  # the newest one
        self._described = True  # whether the metadata can still be written
        self._written = False  # whether they have been
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
        """Rows in the CSV, without the header."""
        self._ended_s = origin.began_s  # end of the newest row
        with ExitStack() as on_failure:
            self._csv = Output(path, draft=self._hidden)
            on_failure.callback(self._csv.discard)
            self._csv.append(csv_lines([columns()]))
            place = self.log_path if log else Path(os.devnull)
            self._log = Output(place, draft=self._hidden or not log)
            on_failure.callback(self.discard)
            self._log.append(line_of(self._origin))
            if not log:
                self._log.close()
            self._describe()
            on_failure.pop_all()

    @property
    def failed(self) -> bool:
        return self._csv.failed

    @property
    def shown(self) -> RecordingStatus:
        return RecordingStatus(path=shown(self.path), rows=self.rows)

    def take(self, item: Logged, /) -> None:
        match item:
            case Interval():
                self._write(item)
            case Closed():
                self.close(item.account)
            case Envelope():
                try:
                    self._tell(item)
                finally:
                    if item.rank == 0:
                        self._note(item.body)

    def discard(self) -> None:
        self._csv.discard()
        self._log.discard()
        if self._written:
            with suppress(OSError):  # removed already, or cannot be removed
                self.metadata_path.unlink()
        self._hidden = self._described = self._written = False

    def abandon(self) -> None:
        """Leave the provenance incomplete. Drafts are removed, as they have no row."""
        if self._hidden:
            self.discard()
        self._csv.close()
        self._log.close()
        self._described = False

    def close(self, account: TimeBreakdown | None = None, /) -> None:
        """Remove files without a row if the training failed or never started."""
        if self._is_in_vain and not self.rows:
            self.discard()
            return
        with suppress(RecordingError):  # costs no row, and nobody could react any more
            self._take_place()
        account = account and account.rounded()
        with suppress(RecordingError):
            self._log.append(line_of(Closed(account=account, ended_s=self._ended_s)))
        self._csv.close()
        self._log.close()
        whole = not (self._csv.failed or self._training_failed)
        if not self._metadata.complete:
            with suppress(RecordingError):
                answer = None if self._answer is None else report_of(self._answer)
                self._describe(complete=whole, account=account, answer=answer)
        self._described = False

    def _tell(self, envelope: Envelope) -> None:
        if not self._log.closed:
            self._log.append(line_of(envelope, every_step=self._origin.every_step))

    def _write(self, interval: Interval) -> None:
        if self._csv.closed:
            return
        self._ended_s = interval.ended_s
        try:
            self._take_place()
        finally:  # a lost provenance costs no row
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
        if not self._csv.closed:  # its draft could not take its place
            rows = cells(interval, self._origin)
            self._csv.append(csv_lines(rows), f" after {self.rows} rows")
            self.rows += len(rows)

    def _note(self, event: object) -> None:
        if isinstance(event, AnswerShown):
            self._answer = event.answer or self._answer
        if not isinstance(event, State):
            return
        self._state, process, failed = event, event.process, event.failure
        is_first = self._metadata.device is None  # of a recording that was begun late
        if process is not None and (is_first or "starts" in event.turns):
            seed = None
            with suppress(KeyError, ValueError):  # in a log of another origin
                seed = int(event.settings["seed"])
            versions = self._metadata.versions | process.versions
            self._describe(device=process.device, seed=seed, versions=versions)
        if failed is not None and "fails" in event.turns:
            at_s = round(event.at_s - self._origin.began_s, 3)
            failure = Failure(at_s=at_s, kind=failed.kind, sentence=failed.sentence)
            self._describe(failures=(*self._metadata.failures, failure)[: provenance.MOST_LISTED])

    @property
    def _training_failed(self) -> bool:
        state = self._state
        return state is not None and state.failure is not None

    @property
    def _is_in_vain(self) -> bool:
        state = self._state
        ended = state is not None and state.phase == "finished" and state.process is None
        return ended or self._training_failed

    def _take_place(self) -> None:
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
