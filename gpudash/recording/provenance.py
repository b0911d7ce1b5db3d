"""Read and write the provenance of a recording: a JSON file beside the CSV.

`complete` is true only after an orderly close of a training that had not failed.
"""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudash.diagnosis.report import AnswerReport
from gpudash.errors import RecordingError
from gpudash.json_input import DamagedError, read_json
from gpudash.output_file import replace_file
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Device
from gpudash.recording.files import reason, shown
from gpudash.views.time_breakdown import TimeBreakdown

SCHEMA_VERSION = 2
"""Raised whenever a reader of older files would misread a new one."""
MOST_LISTED = 1000
"""Most segments, and most failures, that are listed: the file is rewritten for each."""


LONGEST_JSON = 1 << 26
"""Bytes; gpudash writes no larger file."""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the recording with the same settings: the CSV's column `segment`."""

    number: int
    began_s: float
    """Begin of its first row, in seconds since the recording began."""
    workload: str
    settings: Settings


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure of the training, or of gpudash itself; a restart may have followed."""

    at_s: float
    """Seconds since the recording began."""
    kind: str
    """`bad_setting`, `out_of_memory` or `error`."""
    sentence: str


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The provenance of a recording. None = unknown."""

    schema_version: int = SCHEMA_VERSION
    complete: bool = False
    """Whether the recording was closed in order, with its last row, and not by a failure."""
    started_utc: str
    """The recording's time 0, ISO 8601."""
    interval_s: float
    command: tuple[str, ...]
    """The command line, argument by argument."""
    seed: int | None = None
    platform: str
    machine: str | None = None
    """The machine's network name: a CPU has no UUID."""
    versions: dict[str, str]
    """Versions by name: gpudash, python, torch, driver and others."""
    device: Device | None = None
    """None until the worker has started."""
    segments: tuple[Segment, ...] = ()
    """The first `MOST_LISTED`; the CSV's rows have all."""
    failures: tuple[Failure, ...] = ()
    account: TimeBreakdown | None = None
    """Breakdown of the recorded time up to the last step; None while the recording goes on."""
    answer: AnswerReport | None = None
    """The newest answer; None while the recording goes on, and if there was none."""
    set_by: dict[str, str] = {}
    """Setting, as the configuration names it → what has set it; the rest are defaults."""


def path_beside(csv_path: Path, suffix: str = ".json") -> Path:
    """Return `run.json` for `run.csv`, but `run.txt.json` for `run.txt`."""
    if csv_path.suffix == ".csv":
        return csv_path.with_suffix(suffix)
    return csv_path.parent / (csv_path.name + suffix)  # with_name refuses "." and "/"


def beside(recording: Path) -> Path:
    is_log = recording.suffix == ".jsonl"
    return recording.with_suffix(".json") if is_log else path_beside(recording)


def read(path: Path) -> Metadata | None:
    """Return None if there is no file, or if it is not gpudash's."""
    with suppress(OSError, DamagedError):
        return read_json(path, Metadata, LONGEST_JSON)
    return None


def write(path: Path, contents: msgspec.Struct) -> None:
    """Replace the file atomically. Raises RecordingError."""
    text = msgspec.json.format(msgspec.json.encode(contents), indent=2) + b"\n"
    try:
        replace_file(path, text)
    except OSError as error:
        raise RecordingError(f"cannot write {shown(path)}: {reason(error)}") from error


def plain(argument: str) -> str:
    """Return valid text for JSON, whatever the argument's bytes."""
    return os.fsencode(argument).decode("utf-8", "replace")
