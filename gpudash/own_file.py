"""Small JSON files that gpudash keeps for itself: one that cannot be read or written is none."""

import contextlib
from pathlib import Path
from typing import TypeVar

import msgspec

from gpudash.json_input import DamagedError, read_json
from gpudash.output_file import replace_file

T = TypeVar("T")
MOST_BYTES = 16 << 20
"""A larger file is none of ours."""


def read(path: Path, default: T) -> T:
    """Return the default if there is no file or it cannot be read."""
    try:
        return read_json(path, type(default), MOST_BYTES)
    except (OSError, DamagedError):
        return default


def write(path: Path, content: object) -> None:
    """Write atomically, as another gpudash may write too; do nothing if it cannot be."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.encode(content))
