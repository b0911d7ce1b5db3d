"""Where the processes of one `gpudash run` meet: a private directory, named in the environment.

What is in it is the user's own alone. Each Python process of the script leaves a mark there, and
one that trains listens on a socket: whoever opens a dashboard connects to it.
No torch, and nothing that makes a script's start slower.
"""

import os
import tempfile
from pathlib import Path

ENVIRONMENT = "GPUDASH_RUN"
"""Names the directory to every process of the script."""


class Rendezvous:
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self, what: str) -> None:
        """Note of this process that it came so far: `python`, then `torch`."""
        (self.path / f"{os.getpid()}.{what}").touch(mode=0o600)

    def marked(self, what: str) -> set[int]:
        """Return the processes that came so far."""
        return {int(path.stem) for path in self.path.glob(f"*.{what}") if path.stem.isdigit()}

    def socket(self, pid: int) -> Path:
        """Return where this process listens once it trains."""
        return self.path / f"{pid}.sock"

    def sockets(self) -> set[int]:
        """Return the processes that have listened; some may be gone."""
        return self.marked("sock")


def of_environment() -> Rendezvous | None:
    """Return the rendezvous of the run that this process belongs to; None outside of one."""
    path = os.environ.get(ENVIRONMENT)
    return Rendezvous(Path(path)) if path else None


def runs_folder() -> Path:
    """Return the folder in which the runs of this user have their directories; makes it.

    Raises OSError where it cannot be, or is not this user's alone.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "gpudash" if runtime else _temporary()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise PermissionError(f"{folder} is not this user's alone")
    return folder


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"gpudash-{os.geteuid()}"
