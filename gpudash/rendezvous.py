"""Where the processes of one `gpudash run` meet: a private directory, named in the environment.

What is in it is the user's own alone. Each Python process of the script leaves a mark there, and
one that trains listens on a socket: whoever opens a dashboard connects to it.
No torch, and nothing that makes a script's start slower.
"""

import errno
import os
import tempfile
from pathlib import Path

ENVIRONMENT = "GPUDASH_RUN"
"""Names the directory to every process of the script."""
PREFIX = "run-"
"""Of the directories' names."""
ENDING = "ending"
LONGEST_FOLDER = 60
"""Bytes of the folder that all of it is made in."""


class Rendezvous:
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self, what: str) -> None:
        """Note of this process that it came so far: `python`, then `torch`, then `trained`."""
        (self.path / f"{os.getpid()}.{what}").touch(mode=0o600)

    def marks(self) -> dict[str, dict[int, int]]:
        """Return how far which processes came: their numbers, and their files', by what it is.

        A socket is one too, `sock`: of a process that has listened, and may be gone.
        """
        found: dict[str, dict[int, int]] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                pid, _, what = entry.name.partition(".")
                if pid.isdecimal():
                    found.setdefault(what, {})[int(pid)] = entry.inode()
        return found

    def marked(self, what: str) -> set[int]:
        """Return the processes that came so far."""
        return set(self.marks().get(what, ()))

    def end(self) -> None:
        """Note that gpudash, and no user, is about to interrupt the script."""
        (self.path / ENDING).touch(mode=0o600)

    @property
    def is_ending(self) -> bool:
        """Whether that was noted."""
        return (self.path / ENDING).exists()

    def socket(self, pid: int) -> Path:
        """Return where this process listens once it trains."""
        return self.path / f"{pid}.sock"

    def stack(self, pid: int) -> Path:
        """Return where this process writes its stack, if it is asked to.

        The first line tells by which signal it is asked, and its descriptor of the file.
        """
        return self.path / f"{pid}.stack"


def of_environment() -> Rendezvous | None:
    """Return the rendezvous of the run that this process belongs to; None outside of one."""
    path = os.environ.get(ENVIRONMENT)
    return Rendezvous(Path(path)) if path else None


def runs_folder() -> Path:
    """Return the folder in which the runs of this user have their directories; makes it.

    Raises OSError where it cannot be, or is not this user's alone.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK) and _leaves_room(Path(runtime)):
        return _private(Path(runtime) / "gpudash")
    usual = Path(tempfile.gettempdir())
    folder = usual if _leaves_room(usual) else Path("/tmp")  # noqa: S108  # private there
    return _private(folder / f"gpudash-{os.geteuid()}")


def begin() -> Rendezvous:
    """Return the rendezvous of a new run, in a directory of its own. Raises OSError."""
    return Rendezvous(Path(tempfile.mkdtemp(prefix=PREFIX, dir=runs_folder())))


def _leaves_room(folder: Path) -> bool:
    """Tell whether sockets can be made further down: the path of one ends after 107 bytes."""
    return len(os.fsencode(folder)) <= LONGEST_FOLDER


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "it is not this user's alone", str(folder))
    return folder
