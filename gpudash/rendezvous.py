"""The private directory in which the processes of one `gpudash run` meet.

An environment variable names it. Each Python process of the script leaves marks there, and one that
trains listens on a socket to which a dashboard connects. This module imports no torch and nothing
slow, as every Python of the script imports it.
"""

import os
import stat
import tempfile
from pathlib import Path

ENVIRONMENT = "_GPUDASH_RUN"
"""The environment variable with the directory's path. What gpudash's processes tell each other
begins with an underscore, and what a user sets with `GPUDASH_`: neither is taken for the other."""
PREFIX = "gpudash-run-"
"""Prefix of the directories' names; the rest cannot be guessed."""
FOLDER = "GPUDASH_RUN_DIR"
"""The environment variable with the folder for these directories, where the user has chosen one."""
ENDING = "ending"
SETTINGS = "settings"
LONGEST_FOLDER = 60
"""Limit of the parent folder's path, in bytes: a socket's below it has at most 107."""


class Rendezvous:
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self, what: str, why: str = "") -> None:
        """Mark a stage: `python`, then `torch`, then `trained`; or `failed`, with a reason."""
        mark = self.path / f"{os.getpid()}.{what}"
        mark.touch(mode=0o600)
        if why:
            mark.write_text(why, encoding="utf-8", errors="replace")

    def marks(self) -> dict[str, dict[int, int]]:
        """Return by stage the inode of the mark's file by pid; `sock` may list ended processes."""
        found: dict[str, dict[int, int]] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                pid, _, what = entry.name.partition(".")
                if pid.isdecimal():
                    found.setdefault(what, {})[int(pid)] = entry.inode()
        return found

    def marked(self, what: str) -> set[int]:
        return set(self.marks().get(what, ()))

    def end(self) -> None:
        """Mark that gpudash, and not the user, is about to interrupt the script."""
        (self.path / ENDING).touch(mode=0o600)

    @property
    def is_ending(self) -> bool:
        return (self.path / ENDING).exists()

    def begin_with(self, settings: dict[str, str]) -> None:
        """Have a training of this run begin with these settings."""
        lines = (f"{name}={value}\n" for name, value in settings.items())
        (self.path / SETTINGS).write_text("".join(lines), encoding="utf-8")

    @property
    def begins_with(self) -> dict[str, str]:
        path = self.path / SETTINGS
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        words = (line.partition("=") for line in text.splitlines())
        return {name: value for name, _, value in words}

    def socket(self, pid: int) -> Path:
        return self.path / f"{pid}.sock"

    def stack(self, pid: int) -> Path:
        return self.path / f"{pid}.stack"


def of_environment() -> Rendezvous | None:
    path = os.environ.get(ENVIRONMENT)
    return Rendezvous(Path(path)) if path else None


def begin() -> Rendezvous:
    """May raise OSError."""
    return Rendezvous(Path(tempfile.mkdtemp(prefix=PREFIX, dir=folders()[0])))


def begun() -> list[Rendezvous]:
    """May raise OSError."""
    found = (path for folder in folders() for path in folder.glob(f"{PREFIX}*"))
    return [Rendezvous(path) for path in found if _is_private(path)]


def of_others() -> int:
    found = (path for folder in folders() for path in folder.glob(f"{PREFIX}*"))
    return sum(_owner(path) not in (None, os.geteuid()) for path in found)


def folders() -> list[Path]:
    """Return where directories of runs may be, first that of a new run.

    Other users may write there, so what lies there is of a run only if it is private. `/tmp` comes
    first where it can be written, as TMPDIR may be a job's own.
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
    try:
        about = path.lstat()
    except OSError:  # gone
        return False
    return (
        stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
    )
