"""Begin a run's directory, and list this user's running commands from theirs."""

import os
import shutil
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudash import rendezvous
from gpudash.errors import UsageError
from gpudash.format import plain
from gpudash.json_input import DamagedError, read_json
from gpudash.run import keeper
from gpudash.run.command_process import Adopted, CommandProcess, Kernel, attach

VALID = (
    f"valid: {rendezvous.FOLDER} names a local folder that only you can write to "
    f"(mkdir -m 700), in at most {rendezvous.LONGEST_FOLDER} bytes"
)
MOST_BYTES = 16 << 20
"""Of what is written of a run: a command line has no more."""
YOUNG_S = 60.0
"""A younger directory without facts may be of a run that just begins."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What runs, as written by the process that started it."""

    name: str
    command: tuple[str, ...]
    cwd: str
    pid: int
    """The command's process id."""
    is_kept: bool
    """Whether a keeper holds its terminal; a run without a screen has its own."""
    is_notebook: bool = False
    """Whether the command is the kernel of a notebook, which gpudash has not started."""
    processes: tuple[tuple[int, int], tuple[int, int]]
    """The command, and its keeper or the gpudash that watches it: process id and start time in the
    kernel's ticks. A notebook's kernel is both."""
    space: str
    """Machine and PID namespace of these process ids: a container has its own."""
    host: str = ""
    """The machine's name."""
    started_s: float
    """Wall clock time of the start."""


class UserRun(msgspec.Struct, frozen=True):
    """One run of a user's command."""

    place: rendezvous.Rendezvous
    facts: Facts

    @property
    def lives(self) -> bool:
        return any(map(_lives, self.facts.processes))

    @property
    def trains(self) -> bool:
        """Whether the command lives, and not only its keeper with the last output."""
        return _lives(self.facts.processes[0])

    @property
    def has_other_terminal(self) -> bool:
        """Whether it runs without a screen, under a gpudash that is alive."""
        is_own = not (self.facts.is_kept or self.facts.is_notebook)
        return is_own and _lives(self.facts.processes[1])

    def open(self) -> CommandProcess:
        """Raise UsageError if another gpudash watches the command."""
        if self.facts.is_kept:
            return attach(self.place.path, self.facts.name)
        held = Kernel if self.facts.is_notebook else Adopted
        return held(self.place.path, self.facts.name, self.facts.processes[0])


def _lives(process: tuple[int, int]) -> bool:
    pid, began = process
    return 0 <= began == keeper.began_ticks(pid)


def begin() -> rendezvous.Rendezvous:
    """Remove the directories of ended runs too. Raises UsageError."""
    check_folder()
    living()
    folder, place = rendezvous.folders()[0], None
    try:
        place = rendezvous.begin()
        with socket.socket(socket.AF_UNIX) as tried:  # as the training will, where it cannot tell
            tried.bind(str(place.socket(0)))
        place.socket(0).unlink()
    except OSError as error:
        if place is not None:
            shutil.rmtree(place.path, ignore_errors=True)
        what = "sockets" if place else "a private folder"
        raise UsageError(
            plain(f"{folder} holds no run: {what} cannot be made there: {error.strerror}; {VALID}")
        ) from error
    return place


def check_folder() -> None:
    """Raise UsageError if the folder that the user has chosen cannot hold runs."""
    if not os.environ.get(rendezvous.FOLDER):
        return
    (folder,) = rendezvous.folders()
    length, most = len(os.fsencode(folder)), rendezvous.LONGEST_FOLDER
    wrong = f"is longer than sockets allow: {length} bytes of {most}" if length > most else ""
    try:
        wrong = wrong or _what_is_wrong(folder.stat())
    except OSError as error:
        wrong = f"cannot be used: {error.strerror}"
    if not wrong and not os.access(folder, os.W_OK | os.X_OK):
        wrong = "cannot be written"
    if wrong:
        raise UsageError(plain(f"{rendezvous.FOLDER}: {folder} {wrong}; {VALID}"))


def _what_is_wrong(folder: os.stat_result) -> str:
    if not stat.S_ISDIR(folder.st_mode):
        return "is no folder"
    if folder.st_uid not in (os.geteuid(), 0):
        return "is another user's"
    if folder.st_mode & 0o022 and not folder.st_mode & stat.S_ISVTX:
        return "is one in which others can replace what is yours"
    return ""


def living() -> list[UserRun]:
    """Return the oldest first, and remove the directories of runs that have ended."""
    return swept()[0]


def swept() -> tuple[list[UserRun], list[UserRun]]:
    """Return the living runs, and those that have ended, whose directories are removed now."""
    living: list[UserRun] = []
    ended: list[UserRun] = []
    with suppress(OSError):
        for place in rendezvous.begun():
            run = read(place)
            if run is None:
                is_over = _age_s(place.path) > YOUNG_S
            elif run.facts.space != keeper.space():
                continue
            else:
                is_over = not run.lives
                (ended if is_over else living).append(run)
            if is_over:
                shutil.rmtree(place.path, ignore_errors=True)
    return sorted(living, key=_start), ended


def _start(run: UserRun) -> float:
    return run.facts.started_s


def elsewhere() -> list[Facts]:
    """Return what runs on other machines or in other containers that share the folder."""
    found: list[UserRun | None] = []
    with suppress(OSError):
        found += map(read, rendezvous.begun())
    facts = [run.facts for run in found if run is not None]
    return [one for one in facts if one.space != keeper.space()]


def read(place: rendezvous.Rendezvous) -> UserRun | None:
    try:
        facts = read_json(place.path / keeper.FACTS, Facts, MOST_BYTES)
    except (OSError, DamagedError):
        return None
    return UserRun(place, facts)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
