"""List this user's running commands, from their directories."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from gpudash import rendezvous
from gpudash.errors import UNDECODABLE, UsageError
from gpudash.run import keeper, watcher
from gpudash.run.user_command_process import (
    Adopted,
    Kernel,
    UserCommandProcess,
    attach,
    watched,
)

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
    """PID namespace of these process ids: a container has its own."""
    started_s: float
    """Wall clock time of the start."""


class UserRun(msgspec.Struct, frozen=True):
    """One run of a user's command."""

    place: rendezvous.Rendezvous
    facts: Facts

    @property
    def lives(self) -> bool:
        """Whether its command or its keeper is alive."""
        return any(keeper.began_ticks(pid) == began for pid, began in self.facts.processes)

    @property
    def has_other_terminal(self) -> bool:
        """Whether it runs without a screen, under a gpudash that is alive."""
        pid, began = self.facts.processes[1]
        is_own = not (self.facts.is_kept or self.facts.is_notebook)
        return is_own and keeper.began_ticks(pid) == began

    def open(self) -> UserCommandProcess:
        """Connect to the command. Raises UsageError if another gpudash watches it."""
        if self.facts.is_kept:
            return attach(self.place.path, self.facts.name)
        if self.has_other_terminal:
            raise UsageError(watched(self.facts.name))
        if self.facts.is_notebook:
            return self._notebook()
        return Adopted(*self.facts.processes[0])

    def _notebook(self) -> Kernel:
        try:
            lock = watcher.take_over(self.place.path)
        except OSError as error:
            raise UsageError(f"{self.facts.name} has just ended") from error
        if lock is None:
            raise UsageError(watched(self.facts.name))
        return Kernel(*self.facts.processes[0], self.place.path, lock)


def living() -> list[UserRun]:
    """Return the runs that are alive, oldest first; remove the directories of others."""
    found = []
    with suppress(OSError):
        for place in rendezvous.begun():
            run, path = read(place), place.path
            if run is None:
                is_over = _age_s(path) > YOUNG_S
            elif run.facts.space != keeper.space():
                continue
            else:
                is_over = not run.lives
            if is_over:
                shutil.rmtree(path, ignore_errors=True)
            elif run is not None:
                found.append(run)
    return sorted(found, key=lambda run: run.facts.started_s)


def read(place: rendezvous.Rendezvous) -> UserRun | None:
    """Return the run in this directory; None if nothing is written there."""
    try:
        facts = msgspec.json.decode((place.path / keeper.FACTS).read_bytes(), type=Facts)
    except (OSError, *UNDECODABLE):
        return None
    return UserRun(place, facts)


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
