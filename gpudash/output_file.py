"""Write a file of the user's: what was there stays until the new one is complete."""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class _Draft(NamedTuple):
    """A file to write, which is then to replace another one."""

    fd: int
    path: Path | None
    """None for a device or a pipe, which is written directly."""
    place: Path
    """Where it belongs."""


def _draft_beside(path: Path) -> Path:
    """Return a unique hidden path in the same folder."""
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def open_draft(path: Path) -> _Draft:
    """Take over permissions and owner of the file at `path`. Raises OSError.

    A link stays a link. A protected file is refused, and so is a pipe that nobody reads.
    """
    place, before = Path(os.path.realpath(path)), None
    with suppress(FileNotFoundError):
        fd = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            os.set_blocking(fd, True)
            return _Draft(fd, None, place)
        os.close(fd)
    draft = _draft_beside(place)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    if before is not None:
        with suppress(OSError):  # another user's, or a file system without permissions
            os.fchown(fd, before.st_uid, before.st_gid)
        with suppress(OSError):
            os.fchmod(fd, stat.S_IMODE(before.st_mode))
    return _Draft(fd, draft, place)


def replace_file(path: Path, content: bytes) -> None:
    """Leave no half of it to a reader, or on a full disk. Raises OSError."""
    fd, draft, place = open_draft(path)
    try:
        try:
            write_all(fd, content)
        finally:
            os.close(fd)
        if draft is not None:
            draft.replace(place)
    except BaseException:
        if draft is not None:
            draft.unlink(missing_ok=True)
        raise


def write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
