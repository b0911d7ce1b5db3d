"""The inbox between the engine's thread and the screen's: newest snapshot and log lines.

The engine never waits: it overwrites the one snapshot, and wakes the screen at most once until
the screen has read it. Older snapshots are dropped, so nothing queues behind a slow terminal.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from gpudash.protocol.training import Failed
from gpudash.snapshot import KEPT_LINES, Snapshot


class Mail(msgspec.Struct, kw_only=True):
    """The contents of the inbox since the last `take`."""

    snapshot: Snapshot | None = None
    lines: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    output: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    """Lines that a script has printed."""
    replaces: int = 0
    """How many of the newest output lines on the screen are replaced."""
    rewound: bool = False
    """Whether all lines shown before are void: they are sent again."""


NO_MAIL = Mail()


class Inbox:
    """The engine's Listener; `knock` is called on the engine's thread and must return at once."""

    def __init__(self, *, knock: Callable[[], object]) -> None:
        self._knock = knock
        self._mail = Mail()
        self._knocked = False
        self._lock = threading.Lock()
        self.trained: Snapshot | None = None
        """The newest snapshot of a training, shown or not: later ones have no rates."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        with self._arriving():
            self._mail.snapshot = snapshot
            self.trained = snapshot if snapshot.state == "training" else self.trained

    def on_log(self, lines: Sequence[str]) -> None:
        with self._arriving():
            self._mail.lines.extend(lines)

    def on_output(self, lines: Sequence[str], replaces: int) -> None:
        with self._arriving():
            mail = self._mail
            here = min(replaces, len(mail.output))
            for _ in range(here):
                mail.output.pop()
            mail.replaces += replaces - here
            mail.output.extend(lines)

    def on_rewind(self) -> None:
        """Drop the lines, also those on the screen."""
        with self._lock:
            self._mail = Mail(snapshot=self._mail.snapshot, rewound=True)

    def on_failure(self, failure: Failed) -> None:
        """Add the failure to the log: the status line may be too short for its sentence."""
        self.on_log([*failure.traceback.splitlines(), failure.sentence])

    def take(self) -> Mail:
        """Let the next arrival knock again."""
        with self._lock:
            mail, self._mail, self._knocked = self._mail, Mail(), False
        return mail

    @contextmanager
    def _arriving(self) -> Iterator[None]:
        """Hold the lock while the block stores an arrival; then knock if it is the first."""
        with self._lock:
            yield
            is_first, self._knocked = not self._knocked, True
        if is_first:
            self._knock()
