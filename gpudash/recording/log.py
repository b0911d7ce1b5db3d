"""Write and read the log of a recording: all messages in the order in which they came, as JSON.

The first line is the header. Every other line is an envelope: source, rank, sequence number, time,
body; the last one says that the recording was closed in order. A report is a list: its fields, with
its steps in columns. Rows are folded from messages, in a session and of a log alike. A last line
without its end is torn, and a reader waits for the rest.
"""

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gpudash.errors import UsageError
from gpudash.input_file import open_input
from gpudash.json_input import decoded, refuse_nonsense
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.records import Record
from gpudash.protocol.training import Progress
from gpudash.recording.door import refuse_damaged, refuse_false_times, refuse_future
from gpudash.recording.files import no_recording, reason, shown
from gpudash.recording.intervals import Interval
from gpudash.recording.rows import Rows
from gpudash.recording.step_columns import StepColumns, columns_of, steps_of
from gpudash.views.time_breakdown import TimeBreakdown

LOG_VERSION = 3
"""Raised whenever a reader of older logs would misread a new one."""
LONGEST_LINE = 1 << 20
"""Bytes. A longer line ends the reading: gpudash writes none."""
LONGEST_S = 1e9
"""Longest recording in seconds: 30 years."""
SHORTEST_S = 1e-3
"""Shortest row in seconds."""
NONSENSE = (msgspec.MsgspecError, ValueError, ArithmeticError, LookupError, RecursionError)
"""Exceptions from reading an invalid line."""
CLOSED = "recording"
"""The source name of the last line."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """When and by what a recording was begun: the header of its log."""

    gpudash_log: int = LOG_VERSION
    began_s: float
    """Monotonic seconds: the recording's time 0."""
    began_utc: datetime
    """The same moment by the wall clock, with its time zone."""
    interval_s: float
    every_step: bool = False
    """Whether each step is a record of its own, for other programs, and not in columns."""
    command: tuple[str, ...]
    """The command line, argument by argument."""
    platform: str = msgspec.field(default_factory=platform.platform)
    machine: str | None = None
    """Its network name; None if a CSV does not know it."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    """Versions known to the session, as gpudash's; the worker's come with its start."""
    set_by: dict[str, str] = {}
    """Setting, by its configuration name → what has set it; other settings are defaults."""


class Closed(Record, frozen=True, kw_only=True):
    """The recording was closed in order: the last line."""

    account: TimeBreakdown | None
    ended_s: float
    """End of the last row."""


Logged: TypeAlias = Envelope | Interval | Closed
"""The contents of a line, or a row that they complete."""


class _Report(Progress, frozen=True, kw_only=True, array_like=True, tag=False):
    """A report as it is in a log."""

    steps: StepColumns | None  # type: ignore[assignment]  # in columns


_LINE: Any = tuple[str, int, int, float, msgspec.Raw]
_REPORTS = msgspec.json.Decoder(_Report)
_BODIES: msgspec.json.Decoder[Event | Reading] = msgspec.json.Decoder(Event | Reading)
_CLOSED = msgspec.json.Decoder(Closed)
_encode = msgspec.json.Encoder().encode


def line_of(contents: Origin | Envelope | Closed, *, every_step: bool = False) -> bytes:
    match contents:
        case Closed(ended_s=ended_s):
            return _encode((CLOSED, 0, 0, ended_s, contents)) + b"\n"
        case Envelope(body=Progress() as report) if not every_step:
            fields = msgspec.structs.asdict(report) | {"steps": columns_of(report.steps)}
            contents = msgspec.structs.replace(contents, body=_Report(**fields))
    return _encode(contents) + b"\n"


class LineReader(ABC):
    """Reads a file of lines that may still grow, one of at most `LONGEST_LINE` at a time."""

    origin: Origin

    def __init__(self, path: Path) -> None:
        self.path = path
        self.refused = 0
        """Number of invalid lines."""
        self._torn = b""
        try:
            self._file = open_input(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {shown(path)}: {reason(error)}") from error
        try:
            self._begin(self._line() or b"")
        except UsageError:
            self.close()
            raise

    @abstractmethod
    def _begin(self, line: bytes) -> None:
        """Read the first line. Raises UsageError."""

    @abstractmethod
    def _messages(self, line: bytes | None) -> Sequence[Logged]:
        """None stands for the file's end. An invalid line raises one of `NONSENSE`."""

    def close(self) -> None:
        self._file.close()

    @property
    def share_read(self) -> float:
        return self._file.tell() / max(os.fstat(self._file.fileno()).st_size, 1)

    def read(self, most: int = 1000) -> list[Logged]:
        """Leave out and count invalid lines. Raises UsageError if the disk fails."""
        found: list[Logged] = []
        size = 0
        while len(found) < most and (size < LONGEST_LINE or not found):
            line = self._line()
            try:
                messages = self._messages(line)  # a line may hold none, or complete several rows
            except NONSENSE:
                self.refused += 1
            else:
                found += messages
            if line is None:
                break
            size += len(line)
        return found

    def __iter__(self) -> Iterator[Logged]:
        while messages := self.read():
            yield from messages

    def _line(self) -> bytes | None:
        try:
            self._torn += self._file.readline(LONGEST_LINE + 1 - len(self._torn))
        except OSError as error:
            raise UsageError(f"cannot read {shown(self.path)}: {reason(error)}") from error
        if not self._torn.endswith(b"\n"):
            return None
        line, self._torn = self._torn, b""
        return line


class LogReader(LineReader):
    """Reads the messages of a log."""

    def __init__(self, path: Path, *, steps: bool = True) -> None:
        """Without `steps`, reports come without their steps."""
        self._with_steps = steps
        super().__init__(path)

    def _begin(self, line: bytes) -> None:
        self.origin = _origin(self.path, line)

    def _messages(self, line: bytes | None) -> Sequence[Logged]:
        if line is None:
            return ()
        source, rank, seq, sent_s, raw = decoded(line, _LINE)
        if source == CLOSED:
            closed = _CLOSED.decode(raw)
            refuse_damaged(closed)
            return (closed,)
        is_report = bytes(raw)[:1] == b"["
        body = _REPORTS.decode(raw) if is_report else _BODIES.decode(raw)
        found = Envelope(source=source, rank=rank, seq=seq, sent_s=sent_s, body=body)
        refuse_damaged(found)
        if isinstance(body, _Report):
            steps = steps_of(body.steps) if self._with_steps else ()
            body = Progress(**msgspec.structs.asdict(body) | {"steps": steps})
        elif isinstance(body, Progress):
            refuse_false_times(body.steps)
        if isinstance(body, Progress):
            refuse_future(body, sent_s)
        return (msgspec.structs.replace(found, body=body),)


class RowReader(LogReader):
    """Reads a log, and gives each row after the message that completes it."""

    def _begin(self, line: bytes) -> None:
        super()._begin(line)
        self._rows = Rows(self.origin.began_s, self.origin.interval_s)

    def _messages(self, line: bytes | None) -> Sequence[Logged]:
        found: list[Logged] = []
        for item in super()._messages(line):
            match item:
                case Envelope():
                    found += (item, *self._rows.take(item))
                case Closed(ended_s=ended_s):
                    rows = self._rows.close(ended_s)
                    found += (*(row for row in rows if row.began_s < ended_s), item)
        return found


def version_of(path: Path) -> object:
    """Return None if the file is no log."""
    with suppress(OSError, *NONSENSE), open_input(path) as file:
        return decoded(file.readline(LONGEST_LINE), dict[str, Any])["gpudash_log"]
    return None


def _origin(path: Path, line: bytes) -> Origin:
    try:
        version = decoded(line, dict[str, Any])["gpudash_log"]
        if version != LOG_VERSION:
            raise UsageError(
                f"{shown(path)} is a log of version {version!r:.20}: the gpudash that wrote it "
                f"reads it; this one reads version {LOG_VERSION}; "
                "gpudash compare and gpudash export read the CSV beside it"
            )
        origin = decoded(line, Origin)
        refuse_nonsense(1 / max(origin.interval_s - SHORTEST_S, 0.0))
        for moment in (origin.began_utc, origin.began_utc + timedelta(seconds=LONGEST_S)):
            moment.astimezone(UTC)  # there is no year 10000
    except NONSENSE as error:
        raise no_recording(path) from error
    return origin
