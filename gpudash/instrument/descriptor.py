"""Detects that a user's script has closed a file descriptor of ours."""

import os


class Descriptor:
    """A file descriptor of ours."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = _file_at(fd)

    @property
    def is_ours(self) -> bool:
        """Whether the descriptor still refers to the same file."""
        return _file_at(self._fd) == self._file


def _file_at(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
