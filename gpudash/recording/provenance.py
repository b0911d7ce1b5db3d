"""Where a recording comes from: a JSON file beside the CSV, readable at any moment.

It is replaced as a whole whenever there is something to add, so a reader never sees half
of it; `complete` is true only once the recording was closed in order, of a training that had not
failed.
"""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudash.errors import UNDECODABLE, RecordingError
from gpudash.protocol import Device, Settings
from gpudash.recording.files import draft_beside, reason, shown
from gpudash.views.time_breakdown import TimeBreakdown

SCHEMA_VERSION = 2
"""Raised whenever a reader of older files would misread a new one."""
MOST_LISTED = 1000
"""Segments, as failures, are listed up to so many: the file is written again with each of them."""


LONGEST_JSON = 1 << 26
"""Bytes: a larger one is not ours."""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the recording under the same settings: the CSV's column `segment`."""

    number: int
    began_s: float
    """Seconds since the recording began: where its first row begins."""
    workload: str
    settings: Settings


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The training, or gpudash itself, failed; it may have been restarted afterwards."""

    at_s: float
    """Seconds since the recording began."""
    kind: str
    """`bad_setting`, `out_of_memory` or `error`."""
    sentence: str


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The provenance of a recording. None = unknown."""

    schema_version: int = SCHEMA_VERSION
    complete: bool = False
    """The recording was closed in order, its last row is its end, and no failure ended it."""
    started_utc: str
    """The recording's time 0, ISO 8601."""
    interval_s: float
    command: tuple[str, ...]
    """The command line, argument by argument."""
    seed: int | None = None
    platform: str
    machine: str | None = None
    """Its network name: a CPU has no UUID to be known by."""
    versions: dict[str, str]
    """gpudash, python, torch, driver and whatever else was at work, by name."""
    device: Device | None = None
    """None until the worker has started."""
    segments: tuple[Segment, ...] = ()
    """The first `MOST_LISTED`; the CSV's rows tell of all."""
    failures: tuple[Failure, ...] = ()
    account: TimeBreakdown | None = None
    """Where the recorded time up to its last step went; None while the recording goes on."""
    set_by: dict[str, str] = {}
    """Setting, as the configuration names it → what has set it; the rest are defaults."""


def path_beside(csv_path: Path, suffix: str = ".json") -> Path:
    """Return the path of the file beside: `run.json` for `run.csv`, `run.txt.json` for `run.txt`.

    The provenance is `.json`, the log `.jsonl`.
    """
    if csv_path.suffix == ".csv":
        return csv_path.with_suffix(suffix)
    return csv_path.parent / (csv_path.name + suffix)  # with_name refuses "." and "/"


def beside(recording: Path) -> Path:
    """Return where the provenance of a recording is, of which the CSV or the log is named."""
    is_log = recording.suffix == ".jsonl"
    return recording.with_suffix(".json") if is_log else path_beside(recording)


def read(path: Path) -> Metadata | None:
    """Return the provenance in this file; None where there is none, or it is not ours."""
    with suppress(OSError, *UNDECODABLE), path.open("rb") as file:
        return msgspec.json.decode(file.read(LONGEST_JSON), type=Metadata)
    return None


def write(path: Path, contents: msgspec.Struct) -> None:
    """Replace the file by these contents, as JSON, in one stroke. Raises RecordingError."""
    text = msgspec.json.format(msgspec.json.encode(contents), indent=2) + b"\n"
    draft = draft_beside(path)
    try:
        draft.write_bytes(text)
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise RecordingError(f"cannot write {shown(path)}: {reason(error)}") from error


def plain(argument: str) -> str:
    """Return a command-line argument as text that JSON can hold, whatever its bytes were."""
    return os.fsencode(argument).decode("utf-8", "replace")
