"""From the engine's thread to the screen's: the newest snapshot, the last log lines, one knock.

The engine never waits: it overwrites the one slot and knocks at most once until the screen
has looked. What was not looked at in time is gone, so nothing queues behind a slow terminal.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from gpudash.protocol import Failed
from gpudash.snapshot import KEPT_LINES, Snapshot


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """What has arrived since the last look."""

    snapshot: Snapshot | None
    lines: list[str]
    output: list[str] = []
    """What a script has printed."""
    replaces: int = 0
    """So many of the newest lines of its output that are on the screen are void."""
    rewound: bool = False
    """The lines shown before are told again."""


NO_MAIL = Mail(snapshot=None, lines=[])


class Inbox:
    """The Listener the engine is given.

    `knock` wakes the screen; called from the engine's thread, it must return at once.
    """

    def __init__(self, *, knock: Callable[[], object]) -> None:
        self._knock = knock
        self._snapshot: Snapshot | None = None
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._output: deque[str] = deque(maxlen=KEPT_LINES)
        self._replaces = 0
        self._rewound = False
        self._knocked = False
        self._lock = threading.Lock()

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Keep the newest state."""
        with self._arriving():
            self._snapshot = snapshot

    def on_log(self, lines: Sequence[str]) -> None:
        """Keep the last lines."""
        with self._arriving():
            self._lines.extend(lines)

    def on_output(self, lines: Sequence[str], replaces: int) -> None:
        """Keep what a script has printed last, without what it has printed over."""
        with self._arriving():
            here = min(replaces, len(self._output))
            for _ in range(here):
                self._output.pop()
            self._replaces += replaces - here
            self._output.extend(lines)

    def on_rewind(self) -> None:
        """Forget the lines, also those on the screen."""
        with self._lock:
            self._lines.clear()
            self._output.clear()
            self._replaces = 0
            self._rewound = True

    def on_failure(self, failure: Failed) -> None:
        """Keep it with the log: the status line may be too short for its sentence."""
        self.on_log([*failure.traceback.splitlines(), failure.sentence])

    def take(self) -> Mail:
        """Empty the inbox. The next arrival knocks again."""
        with self._lock:
            mail = Mail(
                snapshot=self._snapshot,
                lines=list(self._lines),
                output=list(self._output),
                replaces=self._replaces,
                rewound=self._rewound,
            )
            self._snapshot, self._replaces = None, 0
            self._lines.clear()
            self._output.clear()
            self._knocked = self._rewound = False
        return mail

    @contextmanager
    def _arriving(self) -> Iterator[None]:
        """Take something in here; knock if it is the first since the last look."""
        with self._lock:
            yield
            is_first, self._knocked = not self._knocked, True
        if is_first:
            self._knock()
