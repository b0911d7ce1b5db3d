"""Open a file that the user has named, for reading."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_input(path: Path) -> BufferedReader:
    """Open a file. Raises OSError, also for a named pipe: its writer may never come.

    The pipe of a shell's `<(…)` has its writer. It has no name, so its path leads to no file.
    """
    real = os.path.realpath(path)
    if os.path.exists(real) and stat.S_ISFIFO(os.stat(real).st_mode):  # noqa: PTH110, PTH116  # realpath's text
        raise OSError(errno.ESPIPE, "it is a named pipe; valid: a file")
    return path.open("rb")
