"""Open and read files that the user has named, or gpudash has written: regular ones, with a bound.

Anything may lie at a path: a pipe is waited for without a word, and a device may never end.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

KINDS = (
    (stat.S_ISFIFO, "it is a named pipe"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
    (stat.S_ISSOCK, "it is a socket"),
)


def open_input(path: Path) -> BufferedReader:
    """May raise OSError, also for what is no regular file: its writer may never come.

    The pipe of a shell's `<(…)` has its writer. It has no name, so its path leads to no file.
    """
    real = os.path.realpath(path)
    if os.path.exists(real):  # noqa: PTH110  # realpath's text
        mode = os.stat(real).st_mode  # noqa: PTH116  # …
        for is_one, what in KINDS:
            if is_one(mode):
                raise OSError(errno.ESPIPE, f"{what}; valid: a file")
    return path.open("rb")


def read_input(path: Path, most: int) -> bytes:
    """May raise OSError, also for a file larger than `most` bytes."""
    with open_input(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return data


def read_text(path: Path, most: int) -> str:
    """May raise OSError or ValueError."""
    return read_input(path, most).decode().replace("\r\n", "\n").replace("\r", "\n")
