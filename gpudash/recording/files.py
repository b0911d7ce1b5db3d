"""Creating the files of a recording, and what the user reads where that fails."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpudash.errors import ExistsError, RecordingError, UsageError


class Output:
    """A file to write to: at its place at once, or a hidden draft until it takes its place."""

    def __init__(self, path: Path, *, draft: bool) -> None:
        """Create the file and open it as `fd`. Raises RecordingError.

        With `draft`, whatever is at `path` stays untouched until `take_place`; what cannot be
        replaced, a device or a pipe, is written to at once. Without, nothing may be there.
        """
        self._path = path
        self._place = path
        self._made: Path | None = None
        """The file or its draft, which `discard` removes; None where it writes to a device."""
        self._size = 0
        self.closed = False
        self.failed = False
        """It could not be written to its end, or not take its place."""
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
        """Replace what is at the path by the draft, in one stroke. Raises RecordingError."""
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
        """Write it whole. Nothing is written to a closed file.

        Raises RecordingError where that fails, once: the file is then cut back and closed.
        """
        if self.closed:
            return
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self.fd, left) :]
        except OSError as error:
            with suppress(OSError):  # not every target can be cut
                os.ftruncate(self.fd, self._size)
            self.close()
            self.failed = True
            raise RecordingError(
                f"recording to {shown(self._path)} ends{after}: {reason(error)}"
            ) from error
        self._size += len(data)

    def close(self) -> None:
        """Close the file. Closing again does nothing."""
        if self.closed:
            return
        self.closed = True
        try:
            os.close(self.fd)
        except OSError:  # across a network, only now is a full disk told of
            self.failed = True

    def discard(self) -> None:
        """Close the file and remove it, or its draft; what a draft would have replaced stays."""
        self.close()
        made, self._made = self._made, None
        if made is not None:
            with suppress(OSError):  # removed already, or there is nothing that could be done
                made.unlink()

    def _create(self, path: Path) -> int:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._made = path
        return fd

    def _open_draft(self) -> int:
        self._place = Path(os.path.realpath(self._path))  # a link stays one
        mode = None
        with suppress(FileNotFoundError):
            fd = os.open(self._place, os.O_WRONLY | os.O_CLOEXEC)  # a protected file is refused
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                return fd
            os.close(fd)
        fd = self._create(draft_beside(self._place))
        if mode is not None:
            with suppress(OSError):  # not every file system knows permissions
                os.fchmod(fd, stat.S_IMODE(mode))
        return fd


@contextmanager
def created(target: Path, *, force: bool) -> Iterator[Output]:
    """Create a file that takes its place once it is whole. Raises RecordingError."""
    if not force:
        refuse_existing(target)
    output = Output(target, draft=True)
    try:
        yield output
        output.close()
        if output.failed:
            raise RecordingError(f"recording to {shown(target)} ends: its last rows were lost")  # noqa: TRY301  # discarded below
        output.take_place()
    except OSError as error:  # of a library that writes by itself
        output.discard()
        raise RecordingError(f"recording to {shown(target)} ends: {reason(error)}") from error
    except BaseException:
        output.discard()
        raise


def draft_beside(path: Path) -> Path:
    """Return a hidden name in the same folder that nothing else has."""
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def refuse_existing(path: Path, *beside: Path) -> None:
    """Raise RecordingError if something is at any of the paths, a dangling link included."""
    if os.path.lexists(path):
        raise _existing(path)
    for other in filter(os.path.lexists, beside):
        raise ExistsError(f"cannot record to {shown(path)}: {shown(other)} exists")


def replaces(path: Path, *beside: Path, force: bool) -> bool:
    """Return whether there is something to replace. Raises RecordingError where it has to stay."""
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
    """Return why a file operation failed, in a few plain words."""
    if not isinstance(error, OSError):
        return str(error)
    plain = {
        errno.EISDIR: "it is a folder",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "the disk is read-only",
    }
    return plain.get(error.errno or 0, (error.strerror or "unknown error").lower())


def no_recording(path: Path) -> UsageError:
    """Return what is said of a file that holds none."""
    return UsageError(
        f"{shown(path)} is not a recording; valid: the .csv or the .jsonl that --record wrote"
    )


def text_of(path: Path) -> str:
    """Return the path as a message can hold it. Raises UsageError where it is no UTF-8."""
    try:
        return str(path).encode().decode()
    except UnicodeEncodeError:
        raise UsageError(f"{shown(path)} is not valid: its name is no UTF-8") from None


def shown(path: Path | str) -> str:
    """Return the path, or a command that may name one, as one printable line."""
    text = str(path)
    return text if text.isprintable() else ascii(text)
