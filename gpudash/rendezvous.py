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
ENDING = "ending"
LONGEST_FOLDER = 60
"""Limit of the parent folder's path, in bytes."""


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

    def why(self, what: str) -> str:
        """Return what such a mark says, as a line; empty if none says anything."""
        for pid in sorted(self.marked(what)):
            try:
                said = (self.path / f"{pid}.{what}").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if said.strip():
                return said.strip().splitlines()[0]
        return ""

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
    return Rendezvous(Path(tempfile.mkdtemp(prefix=PREFIX, dir=_folder())))


def begun() -> list[Rendezvous]:
    """Return the directories of this user's runs. Raises OSError."""
    return [Rendezvous(path) for path in _folder().glob(f"{PREFIX}*") if _is_private(path)]


def _folder() -> Path:
    """Return the folder with the directories of runs. Other users may have access to it.

    So no name in it is expected to be free, and what lies there is of a run only if it is private.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK) and _leaves_room(Path(runtime)):
        return Path(runtime)
    usual = Path(tempfile.gettempdir())
    return usual if _leaves_room(usual) else Path("/tmp")  # noqa: S108  # private there


def _leaves_room(folder: Path) -> bool:
    """Return whether sockets fit below this folder: their paths have at most 107 bytes."""
    return len(os.fsencode(folder)) <= LONGEST_FOLDER


def _is_private(path: Path) -> bool:
    """Return whether this is a directory that is this user's alone."""
    try:
        about = path.lstat()
    except OSError:  # gone
        return False
    return (
        stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
    )
