"""The attempts at a project: each change that was judged, in `.gpudash/attempts.jsonl`.

The folder lies at the root of the Git repository, and ignores itself. Several gpudashes, of other
versions and other users too, may append at once; a line of one that was killed may be cut.
"""

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudash.input_file import read_input
from gpudash.json_input import DamagedError, decoded

FOLDER, FILE = ".gpudash", "attempts.jsonl"
MOST_BYTES = 64 << 20


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was judged, or could not be. None = not measured."""

    schema_version: int = 1
    when: str
    """When it ended, in UTC."""
    gpudash: str
    """Its version."""
    command: str
    lever: str
    """What differs: a lever, `command` or `version`."""
    a: str
    b: str
    verdict: str
    """One word or two: `faster`, `slower`, `no difference`, `inconclusive`, `refused`, `failed` or
    `interrupted`."""
    told: str
    """The verdict's sentence, or why there is none; empty if that is not known."""
    change: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    counted: str = "pairs"
    """What the interval is over: `pairs` or `starts`."""
    count: int = 0
    level: float | None = None
    """The error rate at which the interval would just reach 0."""

    @property
    def claimed(self) -> float | None:
        """Its level, if it says that one side is faster."""
        return self.level if self.verdict in ("faster", "slower") else None

    @property
    def is_tried(self) -> bool:
        """Whether anything was measured."""
        return self.count > 0


class Attempts(NamedTuple):
    """Those of a project, the newest last."""

    known: tuple[Attempt, ...]
    damaged: int = 0
    """Lines that make no sense."""


def project_file() -> Path | None:
    """Return None outside of a Git repository."""
    here = Path.cwd()
    for place in (here, *here.parents):
        if os.path.lexists(place / ".git"):
            return place / FOLDER / FILE
    return None


def keep(path: Path, attempt: Attempt) -> None:
    """Append it. May raise OSError."""
    path.parent.mkdir(exist_ok=True)
    ignoring = path.parent / ".gitignore"
    if not os.path.lexists(ignoring):
        ignoring.write_text("*\n", encoding="utf-8")
    line = msgspec.json.encode(attempt) + b"\n"
    descriptor = os.open(
        path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW, 0o666
    )
    with open(descriptor, "r+b", buffering=0) as file:  # noqa: PTH123  # a descriptor
        fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        if end and os.pread(descriptor, 1, end - 1) != b"\n":  # the last one was cut
            line = b"\n" + line
        file.write(line)


def read(path: Path) -> Attempts:
    """May raise OSError."""
    try:
        lines = read_input(path, MOST_BYTES).splitlines()
    except FileNotFoundError:
        return Attempts(())
    known = list[Attempt]()
    damaged = 0
    for line in lines:
        try:
            known.append(decoded(line, Attempt))
        except DamagedError:
            damaged += 1
    return Attempts(tuple(known), damaged)
