"""What the user asked for and no snapshot shows yet.

Two presses of a key within one screen refresh must add up, and a change must be seen at
once. So requests are remembered here until a snapshot shows them or their refusal, or for a few
snapshots when none does. While no worker lives they are kept as settings of the next start. A
pause cannot be refused: it is waited for.
"""

from gpudash.protocol import Settings
from gpudash.snapshot import Snapshot

PATIENCE = 8
"""Snapshots: two seconds at the default rate, longer than any engine takes to note a command."""


class _Request:
    """A value asked for."""

    def __init__(self, value: str, refusals_before: int) -> None:
        self.value = value
        self.refusals_before = refusals_before  # none of them is an answer to it
        self.waited = 0  # snapshots that have not answered it

    def is_answered(self, name: str, snapshot: Snapshot) -> bool:
        """Tell whether the snapshot shows it, or that it was refused."""
        shown = snapshot.pending.get(name, snapshot.settings.get(name))
        if snapshot.refusals > self.refusals_before and snapshot.refused.get(name) == self.value:
            return True
        return shown == self.value


class Asked:
    """Lever → the value last asked for, until it is answered."""

    def __init__(self) -> None:
        self._requests: dict[str, _Request] = {}
        self._refusals = 0  # as of the newest snapshot
        self.pause: bool | None = None
        """Asked to pause (True) or to go on, and no snapshot shows it."""

    @property
    def settings(self) -> Settings:
        """Everything asked for and not answered."""
        return {name: request.value for name, request in self._requests.items()}

    def ask(self, name: str, value: str) -> None:
        """Remember a request."""
        self._requests[name] = _Request(value, self._refusals)

    def forget(self, name: str) -> None:
        """Drop a request."""
        self._requests.pop(name, None)

    def clear(self) -> None:
        """Drop every request: a new worker was started with them."""
        self._requests.clear()
        self.pause = None

    def reconcile(self, snapshot: Snapshot) -> None:
        """Drop what this snapshot answers, and what a good many have not."""
        for name, request in list(self._requests.items()):
            request.waited += 1
            if request.is_answered(name, snapshot) or request.waited > PATIENCE:
                self.forget(name)
        self._refusals = snapshot.refusals
        if self.pause == (snapshot.state == "paused"):
            self.pause = None
