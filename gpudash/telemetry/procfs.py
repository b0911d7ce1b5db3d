"""Reading the files of /proc."""

import os

PROC = "/proc"
GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
"""Errors of /proc for a process that has ended, or that it hides (other users', with `hidepid`)."""


def threads(pid: int) -> list[str]:
    """Return the folder in /proc of each thread of the process. Raises one of `GONE`."""
    folder = f"{pid}/task"
    names = os.listdir(f"{PROC}/{folder}")  # noqa: PTH208  # a Path costs as much again
    return [f"{folder}/{name}" for name in names]


def text(path: str) -> bytes:
    """Return the contents of a file in /proc; unbuffered, as a worker may have many threads."""
    fd = os.open(f"{PROC}/{path}", os.O_RDONLY)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)
