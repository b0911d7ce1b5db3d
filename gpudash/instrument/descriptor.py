"""What of ours is open in a process of the user's, where a script may close all that it finds."""

import os


class Descriptor:
    """A descriptor of ours, until a script closes it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = _file_at(fd)

    @property
    def is_ours(self) -> bool:
        """Whether what is open there is what was."""
        return _file_at(self._fd) == self._file


def _file_at(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
