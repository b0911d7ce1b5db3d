"""The log of a recording: everything that came, one line of JSON a message.

The first line is the header. Every other one is an envelope: source, rank, sequence number,
moment, body. Intervals come as bare values, in the order that the newest `RowNames` line gives;
so an hour at 300 steps/s is less than 5 MB. Lines are written whole: a last one without its end
is torn, and a reader waits for the rest of it.
"""

import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gpudash.errors import UsageError
from gpudash.metrics import METRICS
from gpudash.protocol import Envelope, Record, Settings
from gpudash.recording.files import no_recording, reason, shown
from gpudash.recording.intervals import Interval
from gpudash.views.time_breakdown import TimeBreakdown

LOG_VERSION = 1
"""Raised whenever a reader of older logs would misread a new one."""
LONGEST_LINE = 1 << 20
"""Bytes. A longer line ends the reading: it is not ours."""
LONGEST_S = 1e9
"""No recording lasts as long: 30 years."""
LARGEST = 1 << 63
"""No number in a log is as large: nanoseconds since 1970 are the largest, and 64 bits hold them."""
NONSENSE = (msgspec.MsgspecError, ValueError, ArithmeticError, LookupError, RecursionError)
"""What reading a line may raise that makes no sense."""
ROWS = "recording"
"""The source of intervals."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """When and by what a recording is begun: the header of its log."""

    gpudash_log: int = LOG_VERSION
    began_s: float
    """Monotonic seconds: the recording's time 0."""
    began_utc: datetime
    """The same moment by the wall clock, with its time zone."""
    interval_s: float
    every_step: bool = False
    """Steps and readings are in it as they came, besides the intervals they came to."""
    command: tuple[str, ...]
    """The command line, argument by argument."""
    platform: str = msgspec.field(default_factory=platform.platform)
    machine: str | None = None
    """Its network name; older logs do not say."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    """Of gpudash and whatever the session knows; the worker's come with its start."""
    set_by: dict[str, str] = {}
    """Setting, as the configuration names it → what has set it; the rest are defaults."""


Way: TypeAlias = tuple[str | int, ...]
"""The way to a value through an interval's fields."""


class RowNames(Record, frozen=True, kw_only=True):
    """What the intervals that follow have in common, and what their values are."""

    workload: str
    segment: int
    settings: Settings
    names: tuple[Way, ...]


class Closed(Record, frozen=True, kw_only=True):
    """The recording was closed in order: the last line."""

    account: TimeBreakdown | None


Logged: TypeAlias = Envelope | Interval | Closed
"""What a line of a log, or several, hold."""
COMMON = ("workload", "segment", "settings")
"""The fields of an interval that its line leaves to `RowNames`."""
LISTS = ("gpus", "ranks")
"""Those that hold records."""
DIGITS = {name: metric.csv for name, metric in METRICS.items() if isinstance(metric.csv, int)}
"""The decimals of the CSV: a row made of the log then reads the same."""
_LINE = tuple[str, int, int, float, Any]
_encode = msgspec.json.Encoder().encode


class LogLines:
    """Turns intervals into lines."""

    def __init__(self) -> None:
        self._common: dict[str, Any] = {}
        self._names: dict[Way, None] = {}
        self._seq = 0
        self._ended_s = 0.0

    def interval(self, interval: Interval) -> bytes:
        """Return the line of an interval, after one of names where these are new."""
        fields = msgspec.to_builtins(interval)
        common = {name: fields.pop(name) for name in COMMON}
        values = {way: _short(way, value) for way, value in _flat(fields)}
        line, self._ended_s = b"", interval.ended_s
        if common != self._common or not values.keys() <= self._names.keys():
            self._common = common
            self._names |= dict.fromkeys(values)
            line = self._line(RowNames(**common, names=tuple(self._names)))
        return line + self._line([values.get(way) for way in self._names])

    def closed(self, account: TimeBreakdown | None) -> bytes:
        """Return the last line."""
        return self._line(Closed(account=account))

    def _line(self, body: object) -> bytes:
        self._seq += 1
        return _encode((ROWS, 0, self._seq, round(self._ended_s, 6), body)) + b"\n"


def line_of(contents: Origin | Envelope) -> bytes:
    """Return the line of the header, or of a message as it came."""
    return _encode(contents) + b"\n"


class LineReader(ABC):
    """Reads a file of lines, also one that still grows: `read` again for what has come meanwhile.

    At most one line is held, and none of more than `LONGEST_LINE`.
    """

    origin: Origin

    def __init__(self, path: Path) -> None:
        """Open the file and read its first line. Raises UsageError."""
        self.path = path
        self.refused = 0
        """Lines that make no sense."""
        self._torn = b""
        try:
            self._file = path.open("rb")
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {shown(path)}: {reason(error)}") from error
        try:
            self._begin(self._line() or b"")
        except UsageError:
            self.close()
            raise

    @abstractmethod
    def _begin(self, line: bytes) -> None:
        """Take the first line. Raises UsageError."""

    @abstractmethod
    def _messages(self, line: bytes | None) -> Sequence[Logged]:
        """Return what a line holds, or, for None, what was held back until the end.

        Raises one of `NONSENSE` where it makes none.
        """

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, most: int = 1000) -> list[Logged]:
        """Return the next messages, at most so many; none where the log ends for now.

        They are fewer where lines are long. Lines that make no sense are left out and counted.
        Raises UsageError for a failing disk.
        """
        found: list[Logged] = []
        size = 0
        while len(found) < most and (size < LONGEST_LINE or not found):
            line = self._line()
            try:
                found += self._messages(line)  # a line may hold more than one
            except NONSENSE:
                self.refused += 1
            if line is None:
                break
            size += len(line)
        return found

    def __iter__(self) -> Iterator[Logged]:
        """Go through the messages up to the log's end."""
        while messages := self.read():
            yield from messages

    def _line(self) -> bytes | None:
        """Return the next whole line; None where there is none, or one that is too long."""
        try:
            self._torn += self._file.readline(LONGEST_LINE + 1 - len(self._torn))
        except OSError as error:
            raise UsageError(f"cannot read {shown(self.path)}: {reason(error)}") from error
        if not self._torn.endswith(b"\n"):
            return None
        line, self._torn = self._torn, b""
        return line


class LogReader(LineReader):
    """Reads a log."""

    def _begin(self, line: bytes) -> None:
        self._common: RowNames | None = None
        self.origin = _origin(self.path, line)
        self._ended_s = self.origin.began_s

    def _messages(self, line: bytes | None) -> Sequence[Logged]:
        if line is None:
            return ()
        source, *numbers, body = fields = msgspec.json.decode(line, type=_LINE)
        refuse_nonsense([*numbers, body])
        if source != ROWS:
            return (msgspec.convert(fields, Envelope),)
        if isinstance(body, list):
            return (self._interval(body),)
        found = msgspec.convert(body, RowNames | Closed)
        if isinstance(found, Closed):
            return (found,)
        self._common = found
        return ()

    def _interval(self, values: list[Any]) -> Interval:
        if self._common is None:
            raise ValueError("values without names")
        fields = _nested(zip(self._common.names, values, strict=True))
        fields |= {name: list(fields.get(name, {}).values()) for name in LISTS}
        fields |= {name: getattr(self._common, name) for name in COMMON}
        interval = msgspec.convert(fields, Interval)
        counts = [n for burst in interval.bursts for _, n in burst.step_times]
        longest_s = self.origin.interval_s * (1 + 1e-6)
        if not (
            self._ended_s <= interval.began_s < interval.ended_s <= interval.began_s + longest_s
            and interval.ended_s < self.origin.began_s + LONGEST_S
            and sum(counts) == interval.steps
            and all(n > 0 for n in counts)
            and all(burst.began_s < interval.ended_s for burst in interval.bursts)
            and all(ms >= 0 for burst in interval.bursts for ms, _ in burst.step_times)
        ):
            raise ValueError("not an interval that follows")
        self._ended_s = interval.ended_s
        return interval


def _origin(path: Path, line: bytes) -> Origin:
    try:
        version = msgspec.json.decode(line, type=dict[str, Any])["gpudash_log"]
        if version != LOG_VERSION:
            raise UsageError(
                f"{shown(path)} is a log of version {version!r:.20}; this gpudash reads "
                f"version {LOG_VERSION}"
            )
        origin = msgspec.json.decode(line, type=Origin)
        refuse_nonsense(origin.began_s)
        refuse_nonsense(1 / origin.interval_s)
        for moment in (origin.began_utc, origin.began_utc + timedelta(seconds=LONGEST_S)):
            moment.astimezone(UTC)  # there is no year 10000
    except NONSENSE as error:
        raise no_recording(path) from error
    return origin


def _flat(value: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    """Yield every value that is in an interval's fields, with the way to it."""
    if len(way) == 1 and way[0] in LISTS:
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _flat(one, (*way, name))
    else:
        yield way, value


def _nested(values: Iterator[tuple[Way, Any]]) -> dict[Any, Any]:
    """Undo `_flat`; what was not measured is left out."""
    fields: dict[Any, Any] = {}
    for (*way, last), value in values:
        if value is not None:
            inner = fields
            for name in way:
                inner = inner.setdefault(name, {})
            inner[last] = value
    return fields


def _short(way: Way, value: Any) -> Any:
    """Round to what the CSV says, or is significant; borders of rows are kept exactly."""
    if way[0] == "bursts":
        return [
            (round(began_s, 6), [(_significant(ms), count) for ms, count in times])
            for began_s, times in value
        ]
    if "parts_ms" in way:
        return [_significant(ms) for ms in value]
    if not isinstance(value, float) or way[0] in ("began_s", "ended_s"):
        return value
    if not isfinite(value):
        return None
    is_phase = "phases_ms" in way[:-1]
    name = f"{way[-1]}_ms" if is_phase else str(way[-1])
    digits = DIGITS.get(str(way[0]), DIGITS.get(name))
    return _significant(value) if digits is None else round(value, digits)


def _significant(value: float) -> float:
    return float(f"{value:.5g}")


def refuse_nonsense(value: Any) -> None:
    """Raise ValueError for a number that nothing measures, anywhere inside."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            refuse_nonsense(one)
    elif isinstance(value, int | float) and not -LARGEST < value < LARGEST:
        raise ValueError("a number that nothing measures")
