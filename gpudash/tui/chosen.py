"""Which levers the user changed in this run, in the words used: what a restart adds to the plan.

The worker reports values in force, `auto` resolved. A restart must send `auto` again, or a
choice made for this machine would turn into one of the user's. So a value is only sent where
the user asked for it and the worker took it; every other lever stays as it was planned.
"""

from gpudash.protocol import Settings
from gpudash.snapshot import Snapshot


class Chosen:
    """Lever and value in force → what the user asked for to get there."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, str], str] = {}
        self._open: dict[str, list[str]] = {}
        """Lever → what was asked for and is not known to have been taken, oldest first."""
        self._before: dict[str, str | None] = {}
        """Lever → the value in force when the oldest of these was asked for."""

    def ask(self, name: str, value: str, in_force: str | None) -> None:
        """Remember a request."""
        self._open.setdefault(name, []).append(value)
        self._before.setdefault(name, in_force)

    def reconcile(self, snapshot: Snapshot) -> None:
        """Learn from a running worker which requests it took."""
        for name, asked in list(self._open.items()):
            now = snapshot.settings.get(name)
            if snapshot.worker_pid is None or now is None:
                continue
            if now in asked:
                self._words[name, now] = now
                del asked[: asked.index(now) + 1]
                self._before[name] = now
            elif now != self._before[name] and name not in snapshot.pending:  # `auto` resolved
                self._words[name, now] = asked.pop()
                asked.clear()
            if not asked:
                del self._open[name], self._before[name]

    def clear(self) -> None:
        """Forget everything: the plan of the next worker has it."""
        self._words.clear()
        self._open.clear()
        self._before.clear()

    def in_force(self, settings: Settings) -> Settings:
        """Return what the user chose of these, in the user's words."""
        return {
            name: self._words[name, value]
            for name, value in settings.items()
            if (name, value) in self._words
        }
