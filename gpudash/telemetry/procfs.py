"""What Linux tells of processes in the files of /proc."""

import os

PROC = "/proc"
GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
"""What /proc answers for a process that has ended, or that it hides: with `hidepid`, those of other
users. Anything else is no answer."""


def threads(pid: int) -> list[str]:
    """Return the folder of each thread of the process. Raises one of `GONE`."""
    folder = f"{pid}/task"
    names = os.listdir(f"{PROC}/{folder}")  # noqa: PTH208  # a Path costs as much again
    return [f"{folder}/{name}" for name in names]


def text(path: str) -> bytes:
    """Return what a file says: unbuffered, as a worker may have hundreds of threads to ask for."""
    fd = os.open(f"{PROC}/{path}", os.O_RDONLY)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)
