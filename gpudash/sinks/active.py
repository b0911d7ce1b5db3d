"""Manage the recordings of a session: at most one is active, others wait for their last rows.

Rows are complete some time after their end, so a stopped recording takes rows for a moment longer.
A recording that fails is reported once and dropped; the run and the other recordings go on.
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
    AnswerShown,
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
    StragglerShown,
)
from gpudash.recording.files import shown
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Logged
from gpudash.sinks.recording import RecordingWriter
from gpudash.sinks.rows import RowStream
from gpudash.views.time_breakdown import TimeBreakdown

LASTING = (
    Hello,
    Plan,
    Started,
    Offered,
    Changed,
    Paused,
    Parted,
    GpuMissing,
    ComparisonShown,
    StragglerShown,
    AnswerShown,
)
"""Messages whose newest one a log begun later needs at its beginning."""
ENDS: dict[type, tuple[type, ...]] = {Started: (Changed, Paused, Parted), Resumed: (Paused,)}
"""Messages that no longer hold after this one of the same source and rank."""


@dataclass
class _Active:
    recording: RecordingWriter | RowStream
    before: TimeBreakdown
    """Time breakdown at its begin."""
    until_s: float = math.inf
    """Rows that begin later are not part of it."""
    after: TimeBreakdown | None = None
    """Time breakdown at its end."""

    def close(self) -> None:
        """Complete the recording; without an account if no step was recorded."""
        account = self.after and self.after.since(self.before)
        self.recording.close(account if account and account.wall_s > 0 else None)


class Recordings:
    """Begins, writes and closes recordings; `report` receives each failure."""

    def __init__(self, report: Callable[[RecordingError], None]) -> None:
        self._report = report
        self._active: list[_Active] = []
        self._lasting: dict[tuple[str, int, type, object], Envelope] = {}  # in order of arrival
        self.rows = 0
        """Rows written to all recordings."""

    def holds(self, path: Path) -> bool:
        """Return whether a recording is being written to this path."""
        return any(active.recording.path.resolve() == path.resolve() for active in self._active)

    @property
    def shown(self) -> snapshot.RecordingStatus | None:
        """Status of the active recording; None without one."""
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
        """Begin a recording, and end the one before.

        It first gets the messages that still hold: the plan, the settings, the GPUs. `started` is
        the worker's start, with its segment in the run.
        """
        self.end(now_s, account)
        active = _Active(recording, account)
        self._active.append(active)
        for one in self._lasting.values():
            is_start = isinstance(one.body, Started) and one.rank == 0
            self._guard(active, replace(one, body=started or one.body) if is_start else one)

    def end(self, now_s: float, account: TimeBreakdown) -> None:
        """End the active recording; rows that have begun are written when they are complete."""
        for active in self._active:
            active.until_s = min(active.until_s, now_s)
            active.after = active.after or account

    def take(self, envelope: Envelope) -> None:
        """Write a message to all recordings that end after it.

        Steps and readings are in rows. So only the first reading of each GPU is written, for its
        name, unless a recording has every step.
        """
        is_new = self._remember(envelope)
        in_rows = isinstance(envelope.body, Progress | GpuReading | HostReading)
        for active in list(self._active):
            wanted = is_new or not in_rows or active.recording.every_step
            if wanted and envelope.sent_s < active.until_s:
                self._guard(active, envelope)

    def _remember(self, envelope: Envelope) -> bool:
        """Keep a message that still holds; return whether it is a GPU's first reading."""
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
        """Write rows, each to the recordings it is part of."""
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
        """Complete all recordings."""
        self.end(math.inf, account)
        while self._active:
            self._active.pop().close()

    def discard_empty(self) -> None:
        """Remove recordings without a row."""
        for active in list(self._active):
            if active.recording.rows == 0:
                self._active.remove(active)
                active.recording.discard()

    def abandon(self) -> None:
        """Close all recordings as incomplete."""
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
