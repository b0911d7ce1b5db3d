"""Feed the sinks of a session: at most one of a name is active, others wait for their last rows."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TypeAlias

from gpudash.errors import RecordingError
from gpudash.protocol.answer import AnswerShown
from gpudash.protocol.commands import Plan
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuMissing, GpuReading, HostReading
from gpudash.protocol.session import ComparisonShown, StragglerShown
from gpudash.protocol.training import Hello, Offered, Progress, State
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.recording.rows import Rows
from gpudash.sinks.sink import Sink
from gpudash.snapshot import RecordingStatus
from gpudash.views.time_breakdown import TimeBreakdown

Report: TypeAlias = Callable[[str, Exception], None]
"""Takes the name of a sink and what it raised."""
LASTING = (
    Hello,
    Plan,
    State,
    Offered,
    GpuMissing,
    ComparisonShown,
    StragglerShown,
    AnswerShown,
)
"""Messages whose newest one of a rank a log begun later needs at its beginning."""


MOST_WAITING = 20_000
"""Items that wait for a slow sink, before single steps and readings are left out: minutes."""


class _Active:
    """A sink and the rows for it, from its begin to its end.

    Rows are folded on the session's thread; the sink is there too, or on a thread of its own.
    """

    def __init__(
        self,
        name: str,
        target: str,
        sink: Sink,
        rows: Rows,
        before: TimeBreakdown,
        report: Report,
    ) -> None:
        self.name, self.target, self.sink = name, target, sink
        self._rows = rows
        self.has_rows = False
        """Whether the sink has got any."""
        self.until_s = math.inf
        """Rows that begin later are not part of it."""
        self.after: TimeBreakdown | None = None
        """Time breakdown at its end."""
        self.is_ending = False
        """Whether nothing is to follow; what waits is taken."""
        self._has_ended = False
        self._before, self._report = before, report
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread = Thread(target=self._work, name=f"gpudash-{name}", daemon=True)
        if sink.apart:
            self._thread.start()

    def wants(self, body: object) -> bool:
        is_read = self.sink.every_reading and not isinstance(body, Progress)
        return (self.sink.every_step or is_read) and self._calls.qsize() < MOST_WAITING

    def take(self, envelope: Envelope, *, wanted: bool = True) -> None:
        """Take a message, which may be wanted for the rows alone; end with the last row."""
        if wanted:
            self._do(partial(self._take, envelope))
        self._write(self._rows.take(envelope))

    def close(self, at_s: float) -> None:
        self._write(row for row in self._rows.close(at_s) if row.began_s < self.until_s)
        self._end()

    def _write(self, rows: Iterable[Interval]) -> None:
        ended_s = -math.inf
        for row in rows:
            self._do(partial(self._take, row))
            self.has_rows, ended_s = self.has_rows or not self.is_ending, row.ended_s
        if ended_s >= self.until_s:
            self._end()

    def _end(self) -> None:
        if self.is_ending:
            return
        account = self.after and self.after.since(self._before)
        self.is_ending = True
        self._do(partial(self._close, account if account and account.wall_s > 0 else None))

    def abandon(self) -> None:
        self.is_ending = True
        self._do(self._abandon)

    def discard(self) -> None:
        self.is_ending = True
        self._do(self._discard)

    def wait(self, timeout_s: float | None) -> None:
        if self.sink.apart:
            self._thread.join(timeout_s)

    def _do(self, call: Callable[[], None]) -> None:
        if self.sink.apart:
            self._calls.put(call)
        else:
            call()

    # ── on the sink's thread ────────────────────────────────────────────────────────────

    def _work(self) -> None:
        while not self._has_ended:
            self._calls.get()()

    def _take(self, item: Envelope | Interval) -> None:
        if self._has_ended:
            return
        try:
            self.sink.take(item)
        except Exception as error:  # noqa: BLE001  # it harms nothing else
            if self.sink.failed or not isinstance(error, RecordingError):
                self.is_ending = True
                self._abandon()
            self._report(self.name, error)

    def _close(self, account: TimeBreakdown | None) -> None:
        self._has_ended = True
        try:
            self.sink.close(account)
        except Exception as error:  # noqa: BLE001  # …
            self._report(self.name, error)

    def _abandon(self) -> None:
        self._has_ended = True
        with suppress(Exception):  # it has failed already
            self.sink.abandon()

    def _discard(self) -> None:
        self._has_ended = True
        with suppress(Exception):  # nothing was lost
            self.sink.discard()


class ActiveSinks:
    """Begins, feeds and ends sinks; `tell` receives each failure, on any thread."""

    def __init__(self, tell: Callable[[RecordingError], None]) -> None:
        self._tell = tell
        self._active: list[_Active] = []
        self._lasting: dict[tuple[int, type, object], Envelope] = {}  # in order of arrival
        self.failures: dict[str, RecordingError] = {}
        """The newest failure of the sinks of each name."""

    def has_rows(self, name: str) -> bool:
        """Return whether a sink of this name has got any."""
        return any(one.has_rows for one in self._active if one.name == name)

    def holds(self, name: str, target: str) -> bool:
        place = Path(target).resolve()
        return any(
            active.name == name and Path(active.target).resolve() == place
            for active in self._going()
        )

    @property
    def shown(self) -> RecordingStatus | None:
        going = [active.sink.shown for active in self._going() if active.until_s == math.inf]
        return next(filter(None, going), None)

    def begin(
        self,
        name: str,
        target: str,
        sink: Sink,
        origin: Origin,
        account: TimeBreakdown,
    ) -> None:
        """End the sink of this name before; the new one first gets the plan, states and GPUs."""
        self.end(name, origin.began_s, account)
        rows = Rows(origin.began_s, origin.interval_s)
        active = _Active(name, target, sink, rows, account, self._note_failure)
        self._active.append(active)
        for one in self._lasting.values():
            active.take(one)

    def end(self, name: str, now_s: float, account: TimeBreakdown) -> None:
        for active in self._going():
            if active.name == name:
                active.until_s = min(active.until_s, now_s)
                active.after = active.after or account

    def take(self, envelope: Envelope) -> None:
        """Hand over a GPU's first reading, for its name; other readings and steps if wanted."""
        is_new, body = self._remember(envelope), envelope.body
        in_rows = isinstance(body, Progress | GpuReading | HostReading)
        for active in self._going():
            active.take(envelope, wanted=is_new or not in_rows or active.wants(body))

    def _remember(self, envelope: Envelope) -> bool:
        body, rank = envelope.body, envelope.rank
        if isinstance(body, State) and body.phase == "starting":
            kept = self._lasting.items()
            self._lasting = {key: one for key, one in kept if one.source != "training"}
        if isinstance(body, GpuReading):
            key = (rank, GpuReading, (envelope.source, body.uuid))
            is_new = key not in self._lasting
            self._lasting[key] = envelope
            return is_new
        if isinstance(body, LASTING):
            # a state replaces another one, whoever has sent it
            source = "" if isinstance(body, State) else envelope.source
            self._lasting.pop((rank, type(body), source), None)
            self._lasting[rank, type(body), source] = envelope
        return False

    def close(self, at_s: float, account: TimeBreakdown) -> None:
        """Write the rows up to this moment."""
        for active in self._going():
            active.after = active.after or account
            active.close(at_s)

    def abandon(self) -> None:
        for active in self._going():
            active.abandon()

    def discard(self) -> None:
        """End all sinks of a session that never began; they leave no file."""
        for active in self._going():
            active.discard()

    def wait(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        for active in self._active:
            active.wait(max(0.0, end_s - time.monotonic()))

    def wait_for(self, name: str) -> None:
        for active in self._active:
            if active.name == name:
                active.wait(None)

    def _going(self) -> list[_Active]:
        return [active for active in self._active if not active.is_ending]

    def _note_failure(self, name: str, error: Exception) -> None:
        if not isinstance(error, RecordingError):
            error = RecordingError(f"{name} ends: {type(error).__name__}: {error}")
        self.failures[name] = error
        self._tell(error)
