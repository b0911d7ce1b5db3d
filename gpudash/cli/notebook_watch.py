"""Watch the kernel of a notebook from beside it, and answer `%gpudash`.

The kernel starts this process, and it ends with the kernel. It watches as a dashboard does, so it
steps aside while `gpudash attach` does.
"""

import json
import os
import select
import socket
import sys
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
    """The session, and who asks for what it has found."""

    def __init__(self, run: UserRun, listener: socket.socket) -> None:
        self._run = run
        self._listener = listener
        self._aside: socket.socket | None = None  # for whom the session was closed
        self._known = Snapshot()
        self._begin()

    def run(self) -> None:
        """Serve until the kernel is gone."""
        while self._run.lives:
            waited = [sys.stdin, self._listener, *([self._aside] if self._aside else [])]
            ready, _, _ = select.select(waited, [], [], LOOK_S)
            if sys.stdin in ready:
                break
            if self._aside in ready and self._aside is not None and not self._hears(self._aside):
                self._aside.close()
                self._aside = None
                self._begin()
            if self._listener in ready:
                with suppress(OSError):
                    self._take(self._listener.accept()[0])
        self._session.close()

    def _begin(self) -> None:
        name, news = self._run.facts.name, News(quiet=True)

        def start(_plan: Plan) -> Source:
            held = Adopted(*self._run.facts.processes[0])
            return ScriptSource(name, held, self._run.place, can=HEADLESS)

        plan = Plan(workload=name, settings={}, command=self._run.facts.command)
        self._session, self._news = Session(plan, start_source=start), news
        self._session.start(news)

    def _take(self, connection: socket.socket) -> None:
        """Obey one request."""
        connection.settimeout(watcher.PATIENCE_S)
        request = watcher.answer(connection)
        if request == watcher.YIELD and self._aside is None:
            self._keep_known()
            self._session.close()
            connection.sendall(watcher.YOURS)
            self._aside = connection
            return
        with connection:
            connection.sendall(watcher.BUSY if request == watcher.YIELD else self._answer())

    @staticmethod
    def _hears(connection: socket.socket) -> bool:
        try:
            return bool(connection.recv(1))
        except OSError:
            return False

    def _keep_known(self) -> None:
        if self._news.snapshot.total_steps:
            self._known = self._news.snapshot

    def _answer(self) -> bytes:
        """Return text and picture of the newest snapshot, as a line of JSON."""
        if self._aside is None:
            self._session.wait(SETTLE_S)
            self._keep_known()
        found = [*lines(self._known, self._session.steps_per_s)]
        if self._aside is not None:
            found.append("gpudash attach watches since then")
        said = {"text": "\n".join(found), "picture": picture(self._known)}
        return f"{json.dumps(said)}\n".encode()


if __name__ == "__main__":
    os.umask(0o077)
    watch(sys.argv[1])
