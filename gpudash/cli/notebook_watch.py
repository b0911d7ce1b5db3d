"""Watch the kernel of a notebook from beside it, and answer `%gpudash`.

The kernel starts this process, and it ends with the kernel. It gives way to `gpudash attach`.
"""

import json
import select
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from gpudash.cli.headless import News
from gpudash.notebook.watching import ANSWERS_S, MOST_BYTES, SOCKET
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import TrainingProcess
from gpudash.rendezvous import Rendezvous
from gpudash.report.cell import lines, picture
from gpudash.run.command_process import CommandProcess
from gpudash.run.job import TrainingJob
from gpudash.run.runs import UserRun, read
from gpudash.run.session import Session
from gpudash.snapshot import Snapshot

LOOK_S = 0.5
"""Seconds between two looks whether the kernel lives."""
MEANWHILE = "has watched meanwhile"
PACE_S, LOOKS = 0.02, 400
"""Seconds between looks for the steps that the kernel has counted, and how many looks at most."""


def watch(place: str) -> None:
    """Watch until the kernel ends, or closes standard input."""
    run = read(Rendezvous(Path(place)))
    if run is None:
        return
    with socket.socket(socket.AF_UNIX) as listener:
        draft = run.place.path / f"{SOCKET}~"
        listener.bind(str(draft))
        draft.chmod(0o600)
        listener.listen()
        draft.rename(run.place.path / SOCKET)
        Watch(run, listener).run()


class Watch:
    """A session without a screen, and who asks for what it has found."""

    def __init__(self, run: UserRun, listener: socket.socket) -> None:
        self._run = run
        self._listener = listener
        self._news = News(quiet=True)
        self._known = Snapshot()
        self._steps_per_s: float | None = None
        self._has_missed = False  # what came since then, as another gpudash watched
        self._left: TrainingProcess | None = None  # when that one came

        def start(_plan: Plan) -> TrainingJob:
            self._source = TrainingJob(
                run.facts.name, _UntouchedKernel(run), run.place, gives_way=True
            )
            return self._source

        plan = Plan(workload=run.facts.name, settings={}, command=run.facts.command)
        self._session = Session(plan, start_source=start)

    def run(self) -> None:
        # the run's steps may be older than this process
        age_s = time.time() - self._run.facts.started_s
        self._session.start(self._news, time.monotonic() - age_s)
        while self._run.lives:
            self._note()
            ready, _, _ = select.select([sys.stdin, self._listener], [], [], LOOK_S)
            if sys.stdin in ready:
                break
            if self._listener in ready:
                with suppress(OSError), self._listener.accept()[0] as connection:
                    connection.settimeout(ANSWERS_S)  # who asks may not write or read
                    connection.sendall(self._answer(*json.loads(connection.recv(MOST_BYTES))))
        self._session.close()

    def _note(self) -> None:
        newest = self._news.snapshot
        if self._source.is_away:
            self._has_missed, self._left = True, newest.process
        elif newest.total_steps and not (self._has_missed and self._knew_more_than(newest)):
            self._known, self._steps_per_s = newest, self._session.steps_per_s
            self._has_missed = self._has_missed and newest.answer is None

    def _knew_more_than(self, newest: Snapshot) -> bool:
        had_answer = self._known.answer is not None and newest.answer is None
        is_same = _training(self._known) == _training(newest)
        return newest.process == self._left or (is_same and had_answer)

    def _has_seen(self, training: int, steps: int) -> bool:
        newest = self._news.snapshot
        is_met = _training(newest) == (self._run.facts.pid, training)
        return not steps or self._source.is_away or (is_met and newest.total_steps >= steps)

    def _answer(self, training: int, steps: int) -> bytes:
        """Return text and picture of the newest snapshot, as a line of JSON."""
        for _ in range(LOOKS):
            if self._has_seen(training, steps) or self._session.wait(PACE_S):
                break
        self._note()
        found = [*lines(self._known, self._steps_per_s)]
        if self._has_missed:
            is_away = self._source.is_away
            found.append(f"gpudash attach {'watches since then' if is_away else MEANWHILE}")
        said = {"text": "\n".join(found), "picture": picture(self._known)}
        return f"{json.dumps(said)}\n".encode()


def _training(snapshot: Snapshot) -> tuple[int, int] | None:
    process = snapshot.process
    return None if process is None else (process.pid, process.number)


class _UntouchedKernel(CommandProcess):
    """The kernel, which nobody ends from here."""

    def __init__(self, run: UserRun) -> None:
        self._run = run

    def read(self) -> bytes:
        self.over = not self._run.lives
        return b""

    def signal(self, number: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
