"""Start another Python that imports this gpudash, whatever the current folder.

A worker gets a scratch directory for its children's sockets and compilers' temporary files. Its
parent holds a lock on it, which ends with the parent: what a later start can lock is unused. (A
process id would not show that where containers share the folder.)
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import gpudash

LONGEST_FOLDER = 55
"""Longest path of the parent folder, in bytes: multiprocessing makes sockets two names further
down, and a socket's path may have 107. With a longer one no batch would ever arrive."""
PREFIX, SUFFIX = "gpudash-", ".s"
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NAME = re.compile(rf"{PREFIX}\w{{8}}{re.escape(SUFFIX)}")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", *arguments]  # a folder of the user's may be named workloads


def environment() -> dict[str, str]:
    package_root = str(Path(gpudash.__file__).parents[1])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
    }


def run(*arguments: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        env=environment(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


class Scratch:
    """A directory that is this process's until `cleanup`."""

    def __init__(self) -> None:
        """Remove unused directories too. Raises OSError."""
        folder = scratch_folder()
        for path in Path(folder).glob(f"{PREFIX}*{SUFFIX}"):
            _remove_abandoned(path)
        while True:
            self.name = tempfile.mkdtemp(prefix=PREFIX, suffix=SUFFIX, dir=folder)
            with suppress(FileNotFoundError):
                self._fd = os.open(self.name, DIRECTORY)
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(self._fd, fcntl.LOCK_EX)
                if Path(self.name).exists():
                    return
                os.close(self._fd)  # another start has removed it before it was locked

    def cleanup(self) -> None:
        if self._fd >= 0:
            shutil.rmtree(self.name, ignore_errors=True)
            os.close(self._fd)
        self._fd = -1


def _remove_abandoned(path: Path) -> None:
    if NAME.fullmatch(path.name) is None:
        return
    with suppress(OSError):  # gone, a link, another user's
        fd = os.open(path, DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)


def scratch_folder() -> str:
    """Return `/tmp` if the folder's path is too long or no UTF-8."""
    usual = tempfile.gettempdir()
    is_fit = len(os.fsencode(usual)) <= LONGEST_FOLDER and usual.isprintable()
    return usual if is_fit else "/tmp"  # noqa: S108  # a private directory is made there
