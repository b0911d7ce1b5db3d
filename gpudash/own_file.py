"""Small JSON files that gpudash keeps for itself: one that cannot be read or written is none."""

import contextlib
import os
from pathlib import Path
from typing import TypeVar

import msgspec

from gpudash.errors import UNDECODABLE

T = TypeVar("T")


def read(path: Path, default: T) -> T:
    """Return what the file has; the default if there is none or it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type(default))
    except (OSError, *UNDECODABLE):
        return default


def write(path: Path, content: object) -> None:
    """Write the file, atomically as another gpudash may write too, if there is a place for it."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        try:
            written.write_bytes(msgspec.json.encode(content))
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)
