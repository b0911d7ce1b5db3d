"""The directory in which a worker's children keep their sockets.

It is made before the worker starts and removed after its end, by the process that outlives it:
the name holds that process's id. What one that was killed has left is removed at the next start.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

import psutil

LONGEST_FOLDER = 47
"""Of the folder for such a directory, in bytes: multiprocessing makes sockets two names further
down, and a socket's path ends after 107. Beyond, no batch would ever arrive."""
NAME = re.compile(r"gpudash-(\d{1,9})-\w{8}")


def make() -> tempfile.TemporaryDirectory[str]:
    """Make a directory, and remove those of processes that live no more. Raises OSError."""
    folder = _folder()
    for path in Path(folder).glob("gpudash-*"):
        if _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.TemporaryDirectory(
        prefix=f"gpudash-{os.getpid()}-", dir=folder, ignore_cleanup_errors=True
    )


def _is_abandoned(path: Path) -> bool:
    """Tell whether the process that made it, one of this user's, has ended."""
    named = NAME.fullmatch(path.name)
    if named is None or psutil.pid_exists(int(named[1])):
        return False
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:  # another start has removed it
        return False


def _folder() -> str:
    """Return where temporary files belong, or `/tmp` where that has too long a name."""
    usual = tempfile.gettempdir()
    is_short = len(os.fsencode(usual)) <= LONGEST_FOLDER
    return usual if is_short else "/tmp"  # noqa: S108  # a directory of its own is made there
