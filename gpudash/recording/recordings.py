"""The recordings of a session: at most one goes on, others may still wait for their last rows.

Rows leave some time after they end, so a recording that was stopped takes rows for a moment
longer. A recording that can no longer be written is told of once and dropped; the run and
the other recordings go on.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from msgspec.structs import replace

from gpudash import snapshot
from gpudash.errors import RecordingError
from gpudash.protocol import (
    Changed,
    ComparisonShown,
    Envelope,
    GpuMissing,
    GpuReading,
    Hello,
    HostReading,
    Offered,
    Parted,
    Paused,
    Plan,
    Progress,
    Restarted,
    Resumed,
    Started,
)
from gpudash.recording.files import shown
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Logged
from gpudash.recording.stream import RowStream
from gpudash.recording.writer import RecordingWriter
from gpudash.views.time_breakdown import TimeBreakdown

LASTING = (Hello, Plan, Started, Offered, Changed, Paused, Parted, GpuMissing, ComparisonShown)
"""What a log that is begun later needs to be understood alone: the newest of each."""
ENDS: dict[type, tuple[type, ...]] = {Started: (Changed, Paused, Parted), Resumed: (Paused,)}
"""What no longer lasts, once this has come of the same source and rank."""


@dataclass
class _Active:
    recording: RecordingWriter | RowStream
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
    """Opens, feeds and closes; `report` takes each failure."""

    def __init__(self, report: Callable[[RecordingError], None]) -> None:
        self._report = report
        self._active: list[_Active] = []
        self._lasting: dict[tuple[str, int, type, object], Envelope] = {}  # in order of arrival
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
        recording: RecordingWriter | RowStream,
        started: Started | None,
        now_s: float,
        account: TimeBreakdown,
    ) -> None:
        """Feed this one from now on, and end the one before.

        It is told first what lasts: what the run is, how it is set, which GPUs there are.
        `started` is the worker's start, with its segment in the run.
        """
        self.end(now_s, account)
        active = _Active(recording, account)
        self._active.append(active)
        for one in self._lasting.values():
            is_start = isinstance(one.body, Started) and one.rank == 0
            self._guard(active, replace(one, body=started or one.body) if is_start else one)

    def end(self, now_s: float, account: TimeBreakdown) -> None:
        """Take no later rows; those that have begun leave when they are complete."""
        for active in self._active:
            active.until_s = min(active.until_s, now_s)
            active.after = active.after or account

    def take(self, envelope: Envelope) -> None:
        """Write a message to those that were not to end before it.

        Of steps and readings, which their rows tell of, only the first reading of a GPU: no row
        knows its name. Where every step is wanted, all of them.
        """
        is_new = self._remember(envelope)
        in_rows = isinstance(envelope.body, Progress | GpuReading | HostReading)
        for active in list(self._active):
            wanted = is_new or not in_rows or active.recording.every_step
            if wanted and envelope.sent_s < active.until_s:
                self._guard(active, envelope)

    def _remember(self, envelope: Envelope) -> bool:
        """Keep what lasts, in order of arrival; tell whether it is a GPU's first reading."""
        body = envelope.body
        if isinstance(body, Restarted):
            kept = self._lasting.items()
            self._lasting = {key: one for key, one in kept if one.source != "training"}
            body = body.plan
            envelope = replace(envelope, body=body)
        place = (envelope.source, envelope.rank)
        for ended, no_run in product(ENDS.get(type(body), ()), (True, False)):
            self._lasting.pop((*place, ended, no_run), None)
        if isinstance(body, GpuReading):
            return self._lasting.setdefault((*place, GpuReading, body.uuid), envelope) is envelope
        if isinstance(body, LASTING):
            key = (*place, type(body), getattr(body, "run", None) is None)
            self._lasting.pop(key, None)
            self._lasting[key] = envelope
        return False

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
            if active.recording.failed:
                self._active.remove(active)
                active.recording.abandon()
            self._report(error)
