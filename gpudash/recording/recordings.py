"""The recordings of a session: at most one goes on, others may still wait for their last rows.

Rows leave some time after they end, so a recording that was stopped takes rows for a moment
longer. A recording that can no longer be written is told of once and dropped; the run and
the other recordings go on.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpudash import snapshot
from gpudash.errors import RecordingError
from gpudash.protocol import Envelope, Failed, Started
from gpudash.recording.files import shown
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Logged
from gpudash.recording.writer import RecordingWriter
from gpudash.views.time_breakdown import TimeBreakdown


@dataclass
class _Active:
    recording: RecordingWriter
    before: TimeBreakdown
    """Where the time before it went."""
    until_s: float = math.inf
    """Rows that begin from then on are not its own."""
    after: TimeBreakdown | None = None
    """Where the time up to then went."""

    def close(self) -> None:
        """Complete it; without an account where no step was recorded."""
        account = self.after and self.after.since(self.before)
        self.recording.close(account if account and account.wall_s > 0 else None)


class Recordings:
    """Opens, feeds and closes; `tell` hears of each failure."""

    def __init__(self, tell: Callable[[RecordingError], None]) -> None:
        self._tell = tell
        self._active: list[_Active] = []
        self.rows = 0
        """Rows written in all."""

    def holds(self, path: Path) -> bool:
        """Tell whether one of the recordings is being written there."""
        return any(active.recording.path.resolve() == path.resolve() for active in self._active)

    @property
    def shown(self) -> snapshot.RecordingStatus | None:
        """The one that goes on."""
        for active in self._active:
            if active.until_s == math.inf:
                path, rows = shown(active.recording.path), active.recording.rows
                return snapshot.RecordingStatus(path=path, rows=rows)
        return None

    def begin(
        self,
        recording: RecordingWriter,
        started: Started | None,
        now_s: float,
        account: TimeBreakdown,
    ) -> None:
        """Feed this one from now on, and end the one before."""
        self.end(now_s, account)
        self._active.append(_Active(recording, account))
        if started is not None:
            self._guard(self._active[-1], _of_training(started))

    def end(self, now_s: float, account: TimeBreakdown) -> None:
        """Take no later rows; those that have begun leave when they are complete."""
        for active in self._active:
            active.until_s = min(active.until_s, now_s)
            active.after = active.after or account

    def started(self, event: Started) -> None:
        """Note a worker's device, seed and versions."""
        for active in list(self._active):
            self._guard(active, _of_training(event))

    def training_failed(self, event: Failed) -> None:
        """Note the failure in those that were not to end before it."""
        for active in list(self._active):
            if event.at_s < active.until_s:
                self._guard(active, _of_training(event))

    def write(self, intervals: Iterable[Interval]) -> None:
        """Write rows, each where it belongs."""
        for interval in intervals:
            for active in list(self._active):
                if interval.began_s >= active.until_s:
                    self._active.remove(active)
                    active.close()
                else:
                    before = active.recording.rows
                    self._guard(active, interval)
                    self.rows += active.recording.rows - before

    def close(self, account: TimeBreakdown) -> None:
        """Complete all."""
        self.end(math.inf, account)
        while self._active:
            self._active.pop().close()

    def discard_empty(self) -> None:
        """Remove those without a row: nothing happened that could be recorded."""
        for active in list(self._active):
            if active.recording.rows == 0:
                self._active.remove(active)
                active.recording.discard()

    def abandon(self) -> None:
        """Leave all as they are, marked incomplete."""
        while self._active:
            self._active.pop().recording.abandon()

    def _guard(self, active: _Active, item: Logged) -> None:
        try:
            active.recording.take(item)
        except RecordingError as error:
            self._tell(error)
        if active.recording.failed:
            self._active.remove(active)
            active.recording.abandon()


def _of_training(event: Started | Failed) -> Envelope:
    return Envelope(source="training", seq=0, sent_s=event.at_s, body=event)
