"""Create the files of a recording, and state for the user why that fails."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpudash.errors import ExistsError, RecordingError, UsageError
from gpudash.output_file import open_draft, write_all


class Output:
    """A file to write: at its path at once, or as a hidden draft that replaces it later."""

    def __init__(self, path: Path, *, draft: bool) -> None:
        """Write a device or a pipe directly; without `draft`, nothing may exist at `path`."""
        self._path = path
        self._place = path
        self._made: Path | None = None
        """The file or its draft, which `discard` removes; None for a device."""
        self._size = 0
        self.closed = False
        self.failed = False
        """Whether it could not be completed, or could not take its place."""
        try:
            self.fd = self._open_draft() if draft else self._create(path)
        except FileExistsError:
            raise _existing(path) from None
        except FileNotFoundError:
            folder = self._place.parent
            why = f"the folder {shown(folder)} does not exist"
            if folder.is_dir():  # /proc
                why = f"no file can be made in {shown(folder)}"
            raise RecordingError(f"cannot record to {shown(path)}: {why}") from None
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            raise RecordingError(f"cannot record to {shown(path)}: {reason(error)}") from error

    def take_place(self) -> None:
        """Replace the file at the path by the draft, atomically. Raises RecordingError."""
        if self._made is None or self._made == self._place:
            return
        try:
            self._made.replace(self._place)
        except OSError as error:
            self.discard()
            self.failed = True
            raise RecordingError(
                f"cannot record to {shown(self._path)}: {reason(error)}"
            ) from error
        self._made = self._place

    def append(self, data: bytes, after: str = "") -> None:
        """Raise RecordingError once, on failure: the file is cut to its last size and closed."""
        if self.closed:
            return
        try:
            write_all(self.fd, data)
        except OSError as error:
            with suppress(OSError):  # not every target can be truncated
                os.ftruncate(self.fd, self._size)
            self.close()
            self.failed = True
            raise RecordingError(
                f"recording to {shown(self._path)} ends{after}: {reason(error)}"
            ) from error
        self._size += len(data)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            os.close(self.fd)
        except OSError:  # a network file system may report a full disk only now
            self.failed = True

    def discard(self) -> None:
        """Keep a file that the draft would replace."""
        self.close()
        made, self._made = self._made, None
        if made is not None:
            with suppress(OSError):  # removed already, or cannot be removed
                made.unlink()

    def _create(self, path: Path) -> int:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._made = path
        return fd

    def _open_draft(self) -> int:
        fd, self._made, self._place = open_draft(self._path)
        return fd


@contextmanager
def created(target: Path, *, force: bool) -> Iterator[Output]:
    """Create a file that takes its place once it is complete. Raises RecordingError."""
    if not force:
        refuse_existing(target)
    output = Output(target, draft=True)
    try:
        yield output
        output.close()
        if output.failed:
            raise RecordingError(f"recording to {shown(target)} ends: its last rows were lost")  # noqa: TRY301  # discarded below
        output.take_place()
    except BaseException:
        output.discard()
        raise


def refuse_existing(path: Path, *beside: Path) -> None:
    """Raise RecordingError if any of the paths exists, even as a dangling link."""
    if os.path.lexists(path):
        raise _existing(path)
    for other in filter(os.path.lexists, beside):
        raise ExistsError(f"cannot record to {shown(path)}: {shown(other)} exists")


def replaces(path: Path, *beside: Path, force: bool) -> bool:
    """Return whether a file would be replaced. Raises RecordingError if it must not be."""
    if not force:
        refuse_existing(path, *beside)
        return False
    is_there = any(map(os.path.lexists, (path, *beside)))
    for other in beside if is_there else ():
        if other.is_dir():
            raise RecordingError(f"cannot write {shown(other)}: it is a folder")
    return is_there


def _existing(path: Path) -> RecordingError:
    if path.is_dir():
        return RecordingError(f"cannot record to {shown(path)}: it is a folder")
    return ExistsError(f"{shown(path)} exists")


def reason(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return str(error)
    plain = {
        errno.EISDIR: "it is a folder",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "the disk is read-only",
        errno.ENXIO: "it is a pipe that nobody reads",
    }
    return plain.get(error.errno or 0, (error.strerror or "unknown error").lower())


def no_recording(path: Path) -> UsageError:
    return UsageError(
        f"{shown(path)} is not a recording; valid: the .csv or the .jsonl that --record wrote"
    )


def text_of(path: Path) -> str:
    """Raise UsageError if the path is not UTF-8."""
    try:
        return str(path).encode().decode()
    except UnicodeEncodeError:
        why = "its name is no UTF-8; valid: a path in UTF-8"
        raise UsageError(f"{shown(path)} is not valid: {why}") from None


def shown(path: Path | str) -> str:
    """Return the path, or a command that may name one, as one printable line."""
    text = str(path)
    return text if text.isprintable() else ascii(text)
