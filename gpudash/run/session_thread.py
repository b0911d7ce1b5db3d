"""The thread of a session: reads its sources, feeds what it writes, and folds what is shown.

The thread is the only consumer of all sources. It feeds the sinks first, then folds the views. At
the screen's rate it hands its listener a frozen snapshot: a stuck screen delays no step and no row.
"""

import itertools
import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gpudash.compare.ab import Comparison
from gpudash.compare.starts import KnownStarts
from gpudash.errors import ReaderGoneError, RecordingError, SourceError
from gpudash.protocol.commands import (
    AnyCommand,
    Block,
    Blocks,
    Plan,
    Stacks,
    Stop,
)
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.inspections import MemoryOwners
from gpudash.protocol.readings import Reading
from gpudash.protocol.session import Notice
from gpudash.protocol.training import Ability, Failed, Hello, Printed, Progress, Refused, State
from gpudash.ranks.hangs import LEAST_S
from gpudash.recording.step_columns import rounded
from gpudash.run.code_looks import CodeLooks
from gpudash.run.conductor import Conductor
from gpudash.run.fold import Fold
from gpudash.run.lines import StackReply
from gpudash.run.source import RequestQueue, Source
from gpudash.run.stacks import HangWatch
from gpudash.run.telemetry_source import TelemetrySource
from gpudash.run.workload_process import start
from gpudash.sinks.active import ActiveSinks
from gpudash.snapshot import ENDED, Hang, Listener, Snapshot
from gpudash.views.live import owner_lines, owners_title

INTERVAL_S = 0.5
POLL_S = 0.05
"""Seconds between checks for a dead worker and for readings, when nothing arrives."""
STOP_TIMEOUT_S = 5.0
"""Seconds after a Stop until the worker is killed."""


class SessionThread:
    """Follows one training, and all that is read beside it."""

    hang_s = LEAST_S
    """A hang is suspected if no step finishes for this time and for many step times."""
    price: float | None = None
    """What a GPU costs for an hour, for the screen."""

    def __init__(
        self,
        plan: Plan,
        *,
        interval_s: float = INTERVAL_S,
        rate_hz: float = 4.0,
        command: Sequence[str] = (),
        set_by: Mapping[str, str] | None = None,
        start_source: Callable[[Plan], Source] = start,
        beside: Sequence[Source] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask for joules in every A/B if a source of `beside` stamps ticks of energy counters."""
        self.plan = plan
        """The plan of the newest worker."""
        self._clock = clock
        self._interval_s = interval_s
        self._snapshot_every_s = 1.0 / rate_hz
        self._command = tuple(command)
        self._set_by = dict(set_by or {})
        self._requests = RequestQueue()
        self._ids = itertools.count(1)
        self._start_source = start_source
        self._joined = False  # the training had begun before this session
        self._beside = (TelemetrySource(),) if beside is None else tuple(beside)
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._run, name="gpudash-session", daemon=True)
        self._training: Source | None = None
        self._sinks = ActiveSinks(self._tell_failure)
        self._known_starts = KnownStarts()
        self._conductor = Conductor(self._send_blocks, self._emit)
        self._comparison: Comparison | None = None  # the last one that `compare` began
        self._greeted = False  # the training's source has sent a Hello
        self._can: tuple[Ability, ...] = ("record",)  # its abilities
        self._last_command = 0
        self._said = itertools.count()
        self._ended = threading.Event()
        self._closing = False
        self._close_lock = threading.Lock()
        self._closed = False
        self._stopping = False  # a Stop was sent
        self._kill_at_s = math.inf  # finite after a Stop
        self._begin(clock())

    def _begin(self, began_s: float) -> None:
        self._fold = Fold(self.plan, began_s, lambda sentence: self._emit(Notice(text=sentence)))
        self._hangs = HangWatch(self.hang_s, self._ask_for_stacks, self._log)
        self._looks = CodeLooks(self._stack, self._emit)
        self._state = State(at_s=began_s, phase="starting")  # rank 0's newest one

    # ── the thread ──────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self._consume()
            self._requests.obey()
            self._read_training()  # messages that arrived while the listener was busy
            self._read_beside()
            self._show(self._snapshot(self._clock()))  # the last snapshot has all messages
        except Exception as error:  # noqa: BLE001  # must be reported
            sentence = f"gpudash itself failed: {type(error).__name__}: {error}"
            trace = traceback.format_exc()
            now_s = self._clock()
            failure = Failed(kind="error", sentence=sentence, traceback=trace)
            failed = State(at_s=now_s, phase="failed", failure=failure)
            envelope = self._fold.stamp_own(self._of_session(failed))
            self._state = failed
            self._notify_failure(failure)
            self._sinks.take(envelope)
            self._sinks.abandon()
            self._fold.live.take(envelope)
            self._show(self._fold.live.snapshot(now_s))
        finally:
            self._end()

    def _consume(self) -> None:
        self._emit(self.plan)
        next_snapshot_s, newest = 0.0, Snapshot()
        while not self._closing:
            filenos = self._training.filenos if self._training is not None else ()
            self._requests.wait(filenos, POLL_S)
            self._requests.obey()
            self._read_training()
            self._read_beside()
            self._notice_end()
            now_s = time.monotonic()
            self._looks.look(now_s, newest)
            if now_s >= next_snapshot_s:
                newest = self._snapshot(self._clock())
                self._show(newest)
                next_snapshot_s = now_s + self._snapshot_every_s

    def _end(self) -> None:
        try:
            self._release()
            self._complete_sinks()
        finally:
            self._ended.set()

    def _read_training(self) -> None:
        if self._training is None:
            return
        try:
            for envelope in self._training.read():
                self._take(envelope)
        except SourceError as error:
            self._end_training(str(error))

    def _read_beside(self) -> None:
        for source in self._beside:
            for envelope in source.read():
                self._take(envelope)

    def _take(self, envelope: Envelope) -> None:
        from_rank_0 = envelope.source == "training" and not envelope.rank
        if isinstance(envelope.body, Hello) and from_rank_0:
            if self._greeted:  # a replay starts again from the beginning
                self._begin(envelope.sent_s)
                self._notify(lambda listener: listener.on_rewind())
            self._greeted, self._can = True, envelope.body.can
        if isinstance(envelope.body, Progress) and "record" in self._can:  # a replay's are
            envelope = msgspec.structs.replace(envelope, body=rounded(envelope.body))
        stamped = self._fold.stamp(envelope)
        if stamped is not None:
            self._take_stamped(stamped)

    def _take_stamped(self, envelope: Envelope) -> None:
        self._sinks.take(envelope)
        self._hangs.take(envelope)
        if isinstance(envelope.body, State):
            for source in self._beside:
                source.watch(envelope.body, envelope.rank)
        if not envelope.rank:
            self._act_on(envelope.body)
        self._fold.take(envelope)
        if not envelope.rank:
            self._conductor.fold(envelope.body, self._state)

    def _emit(self, event: Event) -> None:
        """Treat the session's own events as messages too, so that a log holds all that is shown."""
        self._take_stamped(self._fold.stamp_own(self._of_session(event)))

    def _of_session(self, event: Event) -> Envelope:
        now_s = self._clock()
        return Envelope(source="session", seq=next(self._said), sent_s=now_s, body=event)

    def _act_on(self, item: Event | Reading) -> None:
        match item:
            case Printed() if "type" in self._can or self._joined:  # a script's is not for the log
                self._notify(lambda listener: listener.on_output(item.lines, item.replaces))
            case Printed():
                self._log(item.lines)
            case State():
                self._turn(item)
            case Refused() | Notice() | MemoryOwners():
                self._log(_words(item))  # in full: a status line may be too short

    def _turn(self, state: State) -> None:
        self._state = state
        if state.process is not None and "starts" in state.turns:
            self._log([note.text for note in state.notes])
        if state.failure is not None and "fails" in state.turns:
            self._notify_failure(state.failure)

    def _send_blocks(self, run: int, blocks: tuple[Block, ...]) -> None:
        self._send(Blocks(id=next(self._ids), run=run, blocks=blocks))

    def _say(self, event: Event | None) -> None:
        """Put a finding of the fold into the messages, so that a replay shows what was shown."""
        if event is not None and "record" in self._can:  # a replay has its own
            self._emit(event)

    def _find(self, now_s: float, hang: Hang | None = None) -> Snapshot:
        self._say(self._fold.stragglers.unsaid)
        found = self._fold.snapshot(now_s, hang)
        self._say(self._fold.unsaid(now_s))
        return found

    def _snapshot(self, now_s: float) -> Snapshot:
        unattributed = self._fold.time.account().unattributed_share
        return msgspec.structs.replace(
            self._find(now_s, self._hangs.look(now_s)),
            joined=self._joined,
            last_command=self._last_command,
            recording=self._sinks.shown,
            price=self.price,
            unattributed_pct=None if unattributed is None else 100 * unattributed,
        )

    def _stack(self) -> StackReply | None:
        if self._training is None or "stacks" not in self._can:
            return None
        return self._training.stack()

    def _ask_for_stacks(self) -> None:
        if "stacks" in self._can:
            self._send(Stacks(id=next(self._ids)))

    # ── the listener ────────────────────────────────────────────────────────────────────

    def _show(self, snapshot: Snapshot) -> None:
        self._notify(lambda listener: listener.on_snapshot(snapshot))

    def _log(self, lines: Sequence[str]) -> None:
        self._notify(lambda listener: listener.on_log(lines))

    def _notify_failure(self, failure: Failed) -> None:
        self._notify(lambda listener: listener.on_failure(failure))

    def _notify(self, say: Callable[[Listener], None]) -> None:
        if self._listener is None:
            return
        try:
            say(self._listener)
        except Exception:  # noqa: BLE001  # a listener's failure must not end the run
            self._listener = None
            traceback.print_exc()

    # ── the training ────────────────────────────────────────────────────────────────────

    def _adopt(self, training: Source) -> None:
        self._training, self._greeted = training, False
        self._joined = training.joined
        self._stopping, self._kill_at_s = False, math.inf
        self._ended.clear()

    def _send(self, command: AnyCommand) -> None:
        if self._training is not None:
            self._emit(command)
            self._training.send(command)

    def _end_comparison(self, reason: str) -> None:
        if self._cancel_comparison(reason):
            self._send_blocks(self._conductor.run, ())

    def _cancel_comparison(self, reason: str) -> bool:
        found = self._conductor.cancel(reason)
        if found is not None:
            self._log([found])
        return found is not None

    def _stop(self, number: int) -> None:
        self._end_comparison("the training was stopped")
        self._send(Stop(id=number))
        self._stopping = True
        if self._training is not None and self._training.is_ours:
            # a worker that is still importing reads no commands
            patience_s = STOP_TIMEOUT_S if self._state.process is not None else 0.0
            self._kill_at_s = time.monotonic() + patience_s

    def _notice_end(self) -> None:
        if self._training is None:
            return
        overdue = time.monotonic() >= self._kill_at_s
        why = "it did not stop" if overdue else self._training.ended()
        if why is not None:
            self._read_training()  # its last messages
            self._end_training(why)

    def _end_training(self, why: str) -> None:
        if self._training is None:  # its last messages could not be decoded
            return
        has_ended = self._state.phase in ENDED
        if self._stopping and not (has_ended and not self._training.is_ours):
            self._emit(State(at_s=self._clock(), phase="stopped"))
        elif not has_ended:
            failure = Failed(kind="error", sentence=why)
            self._emit(State(at_s=self._clock(), phase="failed", failure=failure))
        self._find(self._clock())  # while it can be recorded
        self._end()

    def _release(self) -> None:
        if self._training is not None:
            self._training.close()
            self._training = None

    # ── sinks ───────────────────────────────────────────────────────────────────────────

    def _complete_sinks(self) -> None:
        in_order = self._state.phase in ("finished", "stopped")
        ended_s = self._state.since_s if in_order else self._clock()
        self._sinks.close(ended_s, self._fold.time.account())

    def _tell_failure(self, error: RecordingError) -> None:
        """May be called on the sink's thread."""
        if isinstance(error, ReaderGoneError):  # as a reader of a pipe may
            return
        if threading.get_ident() == self._thread.ident:
            self._emit(Notice(text=str(error)))
        else:
            self._requests.put(lambda: self._emit(Notice(text=str(error))))


def _words(event: Refused | Notice | MemoryOwners) -> Sequence[str]:
    if isinstance(event, MemoryOwners):
        return [owners_title(event), *owner_lines(event)]
    return [event.text if isinstance(event, Notice) else event.reason]
