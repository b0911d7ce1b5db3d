"""Write and read the log of a recording: all messages, each a line of JSON.

The first line is the header. Every other line is an envelope: source, rank, sequence number, time,
body. Intervals are bare values in the order of the newest `RowNames` line, so an hour at 300
steps/s takes less than 5 MB. A last line without its end is torn, and a reader waits for the rest.
"""

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gpudash.errors import UsageError
from gpudash.input_file import open_input
from gpudash.json_input import DamagedError, decoded, refuse_nonsense
from gpudash.metrics import COMPARED, METRICS, PAIRS_DIGITS
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.records import Record, Settings
from gpudash.recording.door import refuse_damaged
from gpudash.recording.files import no_recording, reason, shown
from gpudash.recording.intervals import Interval
from gpudash.views.time_breakdown import TimeBreakdown

LOG_VERSION = 2
"""Raised whenever a reader of older logs would misread a new one."""
LONGEST_LINE = 1 << 20
"""Bytes. A longer line ends the reading: gpudash writes none."""
LONGEST_S = 1e9
"""Longest recording in seconds: 30 years."""
NONSENSE = (msgspec.MsgspecError, ValueError, ArithmeticError, LookupError, RecursionError)
"""Exceptions from reading an invalid line."""
ROWS = "recording"
"""The source name of intervals."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """When and by what a recording was begun: the header of its log."""

    gpudash_log: int = LOG_VERSION
    began_s: float
    """Monotonic seconds: the recording's time 0."""
    began_utc: datetime
    """The same moment by the wall clock, with its time zone."""
    interval_s: float
    every_step: bool = False
    """Whether single steps and readings are in the log, besides the intervals."""
    command: tuple[str, ...]
    """The command line, argument by argument."""
    platform: str = msgspec.field(default_factory=platform.platform)
    machine: str | None = None
    """Its network name; None in older logs."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    """Versions known to the session, as gpudash's; the worker's come with its start."""
    set_by: dict[str, str] = {}
    """Setting, by its configuration name → what has set it; other settings are defaults."""


Way: TypeAlias = tuple[str | int, ...]
"""The path to a value through an interval's fields."""


class RowNames(Record, frozen=True, kw_only=True):
    """Common fields of the intervals that follow, and the names of their values."""

    workload: str
    segment: int
    settings: Settings
    names: tuple[Way, ...]


class Closed(Record, frozen=True, kw_only=True):
    """The recording was closed in order: the last line."""

    account: TimeBreakdown | None


Logged: TypeAlias = Envelope | Interval | Closed
"""The contents of one or more lines."""
COMMON = ("workload", "segment", "settings")
"""Fields of an interval that are in `RowNames`, not in its line."""
LISTS = ("gpus", "ranks")
"""Fields that hold lists of records."""
DIGITS: dict[str | int, int] = {
    name: PAIRS_DIGITS if metric.csv == "pairs" else metric.csv
    for name, metric in METRICS.items()
    if metric.csv == "pairs" or isinstance(metric.csv, int)
}
"""Decimals of the CSV, so that a CSV made from the log is the same."""
_LINE: Any = tuple[str, int, int, float, Any]
_encode = msgspec.json.Encoder().encode


class LogLines:
    """Encodes intervals as lines."""

    def __init__(self) -> None:
        self._common: dict[str, Any] = {}
        self._names: dict[Way, None] = {}
        self._seq = 0
        self._ended_s = 0.0

    def interval(self, interval: Interval) -> bytes:
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
        return self._line(Closed(account=account))

    def _line(self, body: object) -> bytes:
        self._seq += 1
        return _encode((ROWS, 0, self._seq, round(self._ended_s, 6), body)) + b"\n"


def line_of(contents: Origin | Envelope) -> bytes:
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
                messages = self._messages(line)  # a line may hold more than one
                for one in messages:
                    refuse_damaged(one)
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
    """Reads a log."""

    def _begin(self, line: bytes) -> None:
        self._common: RowNames | None = None
        self.origin = _origin(self.path, line)
        self._ended_s = self.origin.began_s

    def _messages(self, line: bytes | None) -> Sequence[Logged]:
        if line is None:
            return ()
        source, *_, body = fields = decoded(line, _LINE)
        if source != ROWS:
            return tuple(msgspec.convert(one, Envelope) for one in _of_now(fields))
        if isinstance(body, list):
            return (self._interval(body),)
        found = msgspec.convert(body, RowNames | Closed)
        if isinstance(found, Closed):
            return (found,)
        _refuse_tangled(found.names)
        self._common = found
        return ()

    def _interval(self, values: list[Any]) -> Interval:
        if self._common is None:
            raise DamagedError("values without names")
        fields = _nested(zip(self._common.names, values, strict=True))
        fields |= {name: list(fields.get(name, {}).values()) for name in LISTS}
        fields |= {name: getattr(self._common, name) for name in COMMON}
        interval = msgspec.convert(fields, Interval)
        bursts = [burst for rank in interval.ranks for burst in rank.bursts]
        longest_s = self.origin.interval_s * (1 + 1e-6)
        if not (
            self._ended_s <= interval.began_s < interval.ended_s <= interval.began_s + longest_s
            and interval.ended_s < self.origin.began_s + LONGEST_S
            and interval.ranks
            and all(rank.untimed >= 0 for rank in interval.ranks)
            and all(burst.began_s < interval.ended_s for burst in bursts)
            and all(ms >= 0 and n > 0 for burst in bursts for ms, n in burst.step_times)
        ):
            raise DamagedError("not an interval that follows")
        self._ended_s = interval.ended_s
        return interval


def _of_now(fields: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield a message as it is written now. A verdict was a message of its own once."""
    *_, body = fields
    kind = body.get("type") if isinstance(body, dict) else None
    if kind == "ComparisonShown" and "sides" not in body:
        body["sides"] = {name: body[name] for name in COMPARED if name in body}
    if kind != "Verdict":
        yield fields


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
        refuse_nonsense(1 / origin.interval_s)
        for moment in (origin.began_utc, origin.began_utc + timedelta(seconds=LONGEST_S)):
            moment.astimezone(UTC)  # there is no year 10000
    except NONSENSE as error:
        raise no_recording(path) from error
    return origin


def _flat(value: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    if len(way) == 1 and way[0] in LISTS:
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _flat(one, (*way, name))
    else:
        yield way, value


def _refuse_tangled(names: Sequence[Way]) -> None:
    inner = {way[:length] for way in names for length in range(len(way))}
    inner |= {(), *((name,) for name in LISTS)}
    if len(set(names)) < len(names) or inner & set(names):
        raise DamagedError("paths that lead to one place, or through a value")


def _nested(values: Iterator[tuple[Way, Any]]) -> dict[Any, Any]:
    fields: dict[Any, Any] = {}
    for (*way, last), value in values:
        if value is not None:
            inner = fields
            for name in way:
                inner = inner.setdefault(name, {})
            inner[last] = value
    return fields


def _short(way: Way, value: Any) -> Any:
    """Return a value rounded as in the CSV, or to 5 significant digits; row borders are exact."""
    if "bursts" in way:
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
    digits = next((DIGITS[name] for name in way if name in DIGITS), None)
    return _significant(value) if digits is None else round(value, digits)


def _significant(value: float) -> float:
    return float(f"{value:.5g}")
