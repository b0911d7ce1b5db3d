"""The private directory in which the processes of one `gpudash run` meet.

An environment variable names it. Only the user can read it. Each Python process of the script
leaves marks there, and one that trains listens on a socket to which a dashboard connects.
This module imports no torch and nothing slow, as every Python of the script imports it.
"""

import os
import stat
import tempfile
from pathlib import Path

ENVIRONMENT = "_GPUDASH_RUN"
"""The environment variable with the directory's path. What gpudash's processes tell each other
begins with an underscore, and a user's settings with `GPUDASH_`: neither is taken for the other."""
PREFIX = "gpudash-run-"
"""Prefix of the directories' names; the rest cannot be guessed."""
FOLDER = "GPUDASH_RUN_DIR"
"""The environment variable with the folder for these directories, where the user has chosen one."""
ENDING = "ending"
LONGEST_FOLDER = 60
"""Limit of the parent folder's path, in bytes: a socket's below it has at most 107."""


class Rendezvous:
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self, what: str, why: str = "") -> None:
        """Mark that this process has reached a stage: `python`, then `torch`, then `trained`.

        Where it measures nothing, `failed` may say why.
        """
        mark = self.path / f"{os.getpid()}.{what}"
        mark.touch(mode=0o600)
        if why:
            mark.write_text(why, encoding="utf-8", errors="replace")

    def marks(self) -> dict[str, dict[int, int]]:
        """Return the marks: by stage, the inode of the mark's file by pid.

        Sockets are listed under `sock`; their processes may have ended.
        """
        found: dict[str, dict[int, int]] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                pid, _, what = entry.name.partition(".")
                if pid.isdecimal():
                    found.setdefault(what, {})[int(pid)] = entry.inode()
        return found

    def marked(self, what: str) -> set[int]:
        """Return the processes that have reached this stage."""
        return set(self.marks().get(what, ()))

    def end(self) -> None:
        """Mark that gpudash, and not the user, is about to interrupt the script."""
        (self.path / ENDING).touch(mode=0o600)

    @property
    def is_ending(self) -> bool:
        """Whether gpudash has marked that it interrupts the script."""
        return (self.path / ENDING).exists()

    def socket(self, pid: int) -> Path:
        """Return the path of the socket on which this process listens once it trains."""
        return self.path / f"{pid}.sock"

    def stack(self, pid: int) -> Path:
        """Return the path of the socket where this process tells where its main thread is."""
        return self.path / f"{pid}.stack"


def of_environment() -> Rendezvous | None:
    """Return the rendezvous of the run that this process belongs to; None outside of one."""
    path = os.environ.get(ENVIRONMENT)
    return Rendezvous(Path(path)) if path else None


def begin() -> Rendezvous:
    """Create the directory of a new run, and return its rendezvous. Raises OSError."""
    return Rendezvous(Path(tempfile.mkdtemp(prefix=PREFIX, dir=folders()[0])))


def begun() -> list[Rendezvous]:
    """Return the directories of this user's runs. Raises OSError."""
    found = (path for folder in folders() for path in folder.glob(f"{PREFIX}*"))
    return [Rendezvous(path) for path in found if _is_private(path)]


def of_others() -> int:
    """Return how many directories of runs there are of other users."""
    found = (path for folder in folders() for path in folder.glob(f"{PREFIX}*"))
    return sum(_owner(path) not in (None, os.geteuid()) for path in found)


def folders() -> list[Path]:
    """Return the folders in which directories of runs may be, first that of a new run.

    Other users may have access to them. So no name in one is expected to be free, and what lies
    there is of a run only if it is private. They do not depend on what differs between a job and
    who looks for it: TMPDIR is the job's own, and a login's folder is removed when it ends.
    """
    if chosen := os.environ.get(FOLDER):
        return [Path(chosen).absolute()]
    usual = [Path("/tmp")]  # noqa: S108  # private there
    other = Path(tempfile.gettempdir())
    if other not in usual and len(os.fsencode(other)) <= LONGEST_FOLDER:
        usual.insert(0 if not os.access(usual[0], os.W_OK) else 1, other)
    return usual


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:  # gone
        return None


def _is_private(path: Path) -> bool:
    """Return whether this is a directory that is this user's alone."""
    try:
        about = path.lstat()
    except OSError:  # gone
        return False
    return (
        stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
    )
