"""Watch the kernel of a notebook from beside it, and answer `%gpudash`.

The kernel starts this process, and it ends with the kernel. It watches as a dashboard does, so it
steps aside while `gpudash attach` does.
"""

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from gpudash.cli.headless import News
from gpudash.protocol.commands import Plan
from gpudash.rendezvous import Rendezvous
from gpudash.report.cell import lines, picture
from gpudash.run import watcher
from gpudash.run.runs import UserRun, read
from gpudash.run.script import HEADLESS, ScriptSource
from gpudash.run.session import Session
from gpudash.run.source import Source
from gpudash.run.user_command_process import Adopted
from gpudash.snapshot import Snapshot

LOOK_S = 0.5
"""Seconds between two looks whether the kernel lives."""
MEET_S = 3.0
"""Seconds to wait for a training that has begun before this process was ready."""
SETTLE_S = 0.5
"""Seconds in which the newest reports become a snapshot: two at its usual rate."""


def watch(place: str) -> None:
    """Watch until the kernel ends, or closes standard input."""
    run = read(Rendezvous(Path(place)))
    if run is None:
        return
    with socket.socket(socket.AF_UNIX) as listener:
        draft = run.place.path / f"{watcher.SOCKET}~"
        listener.bind(str(draft))
        draft.chmod(0o600)
        listener.listen()
        draft.rename(run.place.path / watcher.SOCKET)
        Watch(run, listener).run()


class Watch:
    """The session, while no dashboard watches, and who asks for what it has found."""

    def __init__(self, run: UserRun, listener: socket.socket) -> None:
        self._run = run
        self._listener = listener
        self._lock: int | None = None
        self._session: Session | None = None  # while this process has the lock
        self._news = News(quiet=True)
        self._known = Snapshot()
        self._steps_per_s: float | None = None

    def run(self) -> None:
        """Serve until the kernel is gone."""
        while self._run.lives:
            if self._session is None:
                self._begin()
            ready, _, _ = select.select([sys.stdin, self._listener], [], [], LOOK_S)
            if sys.stdin in ready:
                break
            if self._listener in ready:
                with suppress(OSError):
                    self._take(self._listener.accept()[0])
        self._release()

    def _begin(self) -> None:
        with suppress(OSError):
            self._lock = watcher.lock(self._run.place.path)
        if self._lock is None:
            return
        name = self._run.facts.name

        def start(_plan: Plan) -> Source:
            held = Adopted(*self._run.facts.processes[0])
            return ScriptSource(name, held, self._run.place, can=HEADLESS)

        plan = Plan(workload=name, settings={}, command=self._run.facts.command)
        self._session, self._news = Session(plan, start_source=start), News(quiet=True)
        self._session.start(self._news)

    def _release(self) -> None:
        """Watch no more, and let another gpudash do so."""
        if self._session is not None:
            self._session.close()
            self._note()
        self._session = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take(self, connection: socket.socket) -> None:
        """Obey one request."""
        with connection:
            request = watcher.line(connection)
            if request == watcher.ANSWER:
                connection.sendall(self._answer())
            elif self._session is None:
                connection.sendall(watcher.BUSY)
            else:
                self._release()
                connection.sendall(watcher.YOURS)
                connection.settimeout(watcher.PATIENCE_S)
                connection.recv(1)  # until the other has the lock

    def _trains_unseen(self) -> bool:
        """Whether something trains that the session has not met yet."""
        with suppress(OSError):
            return not self._news.snapshot.total_steps and bool(self._run.place.marked("trained"))
        return False

    def _note(self) -> None:
        """Keep what the session has found, for when it is closed."""
        if self._session is not None and self._news.snapshot.total_steps:
            self._known, self._steps_per_s = self._news.snapshot, self._session.steps_per_s

    def _answer(self) -> bytes:
        """Return text and picture of the newest snapshot, as a line of JSON."""
        session = self._session
        if session is not None:
            session.wait(SETTLE_S)
            until_s = time.monotonic() + MEET_S
            while self._trains_unseen() and time.monotonic() < until_s:
                session.wait(SETTLE_S)
        self._note()
        found = [*lines(self._known, self._steps_per_s)]
        if self._session is None:
            found.append("gpudash attach watches since then")
        said = {"text": "\n".join(found), "picture": picture(self._known)}
        return f"{json.dumps(said)}\n".encode()
