"""What the user asked for and no snapshot shows yet.

Two presses of a key within one screen refresh must add up, and a change must be seen at
once. So requests are remembered here until a snapshot shows them or their refusal, or for a few
snapshots when none does. While no worker lives they are kept as settings of the next start. A
pause cannot be refused: it is waited for.
"""

from gpudash.records import Settings
from gpudash.snapshot import Snapshot

PATIENCE = 8
"""Snapshots: two seconds at the default rate, longer than any engine takes to note a command."""


class Asked:
    """Lever → the value last asked for, and how many snapshots have not shown it."""

    def __init__(self) -> None:
        self._wanted: dict[str, str] = {}
        self._waited: dict[str, int] = {}
        self._refusals: dict[str, int] = {}  # how many there had been when it was asked
        self._refusals_seen = 0
        self.pause: bool | None = None
        """Asked to pause (True) or to go on, and no snapshot shows it."""

    @property
    def settings(self) -> Settings:
        """Everything asked for and not confirmed."""
        return dict(self._wanted)

    def ask(self, name: str, value: str) -> None:
        """Remember a request."""
        self._wanted[name] = value
        self._waited[name] = 0
        self._refusals[name] = self._refusals_seen

    def forget(self, name: str) -> None:
        """Drop a request."""
        self._wanted.pop(name, None)
        self._waited.pop(name, None)
        self._refusals.pop(name, None)

    def clear(self) -> None:
        """Drop every request: a new worker was started with them."""
        self._wanted.clear()
        self._waited.clear()
        self._refusals.clear()
        self.pause = None

    def reconcile(self, snapshot: Snapshot) -> None:
        """Drop what this snapshot answers, and what a good many have not."""
        for name, value in list(self._wanted.items()):
            shown = snapshot.pending.get(name, snapshot.settings.get(name))
            self._waited[name] += 1
            # a refusal from before it was asked is no answer to it
            answered = snapshot.refusals > self._refusals[name]
            refused = answered and snapshot.refused.get(name) == value
            if shown == value or refused or self._waited[name] > PATIENCE:
                self.forget(name)
        self._refusals_seen = snapshot.refusals
        if self.pause == (snapshot.state == "paused"):
            self.pause = None
