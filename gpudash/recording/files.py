"""Creating the files of a recording, and what the user reads where that fails."""

import errno
import os
from pathlib import Path

from gpudash.errors import RecordingError


def refuse_existing(path: Path) -> None:
    """Raise RecordingError if something is at `path`, a dangling link included."""
    if os.path.lexists(path):
        raise RecordingError(f"{shown(path)} exists; --force overwrites it")


def create(path: Path, *, force: bool) -> int:
    """Create an empty file and return its descriptor. Raises RecordingError.

    With `force` an existing file is emptied; without, it is refused.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if force else os.O_EXCL)
    try:
        return os.open(path, flags, 0o666)
    except FileExistsError:
        if path.is_dir():
            raise RecordingError(f"cannot record to {shown(path)}: it is a folder") from None
        raise RecordingError(f"{shown(path)} exists; --force overwrites it") from None
    except FileNotFoundError:
        folder = shown(path.parent)
        raise RecordingError(
            f"cannot record to {shown(path)}: the folder {folder} does not exist"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise RecordingError(f"cannot record to {shown(path)}: {reason(error)}") from error


def reason(error: OSError | ValueError) -> str:
    """Return why a file operation failed, in a few plain words."""
    if not isinstance(error, OSError):
        return str(error)
    plain = {
        errno.EISDIR: "it is a folder",
        errno.EACCES: "permission denied",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "the disk is read-only",
    }
    return plain.get(error.errno or 0, (error.strerror or "unknown error").lower())


def shown(path: Path) -> str:
    """Return the path as one printable line."""
    text = str(path)
    return text if text.isprintable() else ascii(text)
