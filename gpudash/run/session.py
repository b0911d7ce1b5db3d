"""Conduct one run: its sources, the files it writes and the views that fold it.

The session is the only consumer of all sources. Its thread reads messages in order of arrival,
feeds the sinks first, then folds the views. At the screen's rate it hands its listener one
frozen snapshot. A stuck screen delays neither a step nor a row. Everything runs on that thread;
the methods below queue a request and return.
"""

import itertools
import math
import platform
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import gpudash
from gpudash.compare.ab import Comparison, Question
from gpudash.compare.slowing import SlowingTrial
from gpudash.compare.starts import KnownStarts
from gpudash.diagnosis.limits import Limits
from gpudash.errors import ReaderGoneError, RecordingError, SourceError, WorkerError
from gpudash.protocol.commands import (
    AnyCommand,
    Block,
    Blocks,
    Change,
    Figures,
    Memory,
    Pause,
    Plan,
    Profile,
    Rehearse,
    Resume,
    Stacks,
    Stop,
)
from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.inspections import MemoryOwners
from gpudash.protocol.readings import HostReading, Reading
from gpudash.protocol.records import Settings
from gpudash.protocol.session import NewRow, Notice
from gpudash.protocol.training import Ability, Failed, Hello, Printed, Progress, Refused, State
from gpudash.ranks.hangs import LEAST_S
from gpudash.recording.files import shown, text_of
from gpudash.recording.intervals import Intervals
from gpudash.recording.log import Origin
from gpudash.recording.rank_steps import RankTracks
from gpudash.run.code_looks import CodeLooks
from gpudash.run.conductor import Conductor, Experiment
from gpudash.run.fold import Fold
from gpudash.run.hang_watch import HangWatch
from gpudash.run.requests import RequestQueue
from gpudash.run.source import Source
from gpudash.run.stack_reply import StackReply
from gpudash.run.telemetry_source import TelemetrySource
from gpudash.run.worker_process import start
from gpudash.sinks.active import ActiveSinks
from gpudash.sinks.sink import opener
from gpudash.snapshot import ENDED, Hang, Listener, Snapshot
from gpudash.trace.summary import Summary
from gpudash.views.memory import owner_lines, owners_title

INTERVAL_S = 0.5
POLL_S = 0.05
"""Seconds between checks for a dead worker and for readings, when nothing arrives."""
PATIENCE_S = 1.0
"""Seconds to wait for slow sinks at the end. One that hangs is left behind."""
STOP_TIMEOUT_S = 5.0
"""Seconds after a Stop until the worker is killed."""


class Session:
    """A run that can be watched, changed, recorded, restarted and ended."""

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
        """`beside` are sources other than the training: by default the sampler.

        If one stamps the ticks of energy counters, every A/B asks for joules.
        `clock` returns the time that messages are stamped with.
        """
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
        """Create everything that messages are folded into."""
        self._fold = Fold(self.plan, began_s, lambda sentence: self._emit(Notice(text=sentence)))
        self._hangs = HangWatch(self.hang_s, self._ask_for_stacks, self._log)
        self._looks = CodeLooks(self._stack, self._emit)
        self._rank_tracks = RankTracks(self._interval_s)
        self._intervals: Intervals | None = None
        self._state = State(at_s=began_s, phase="starting")  # rank 0's newest one

    @property
    def _meters(self) -> bool:
        return any(one.meters for one in self._beside)

    @property
    def failure(self) -> Failed | None:
        """The failure of the newest worker, or of gpudash itself; None without one."""
        return self._state.failure

    @property
    def sink_failures(self) -> Mapping[str, RecordingError]:
        """The newest failure of the sinks of each name."""
        return self._sinks.failures

    def has_rows(self, sink: str) -> bool:
        """Return whether a sink of this name has had a row."""
        return self._sinks.rows[sink] > 0

    @property
    def steps_per_s(self) -> float | None:
        """The worker's rate without its first step; None before the second step."""
        return self._fold.steps_per_s

    @property
    def limits(self) -> Limits:
        """The training time by what limited it."""
        return self._fold.limits

    # ── requests, from any thread ───────────────────────────────────────────────────────

    def start(self, listener: Listener) -> None:
        """Start the training and the thread. Call from the main thread. Raises WorkerError.

        A listener that raises is not called again.
        """
        self._begin(self._clock())
        self._adopt(self._start_source(self.plan))
        self._listener = listener
        self._thread.start()

    # requests to the training return the id that appears in a later snapshot

    def change(self, settings: Settings) -> int:
        """Set levers at the next step boundary."""
        return self._request(lambda number: self._send(Change(id=number, settings=settings)))

    def pause(self) -> int:
        """Stop between two steps."""
        return self._request(lambda number: self._send(Pause(id=number)))

    def resume(self) -> int:
        """Go on after `pause`."""
        return self._request(lambda number: self._send(Resume(id=number)))

    def profile(self, steps: int, path: Path) -> int:
        """Trace the next steps into this file. Raises UsageError if its name is not valid text."""
        asked = text_of(path.absolute())  # the training may have another current folder
        return self._request(lambda number: self._send(Profile(id=number, steps=steps, path=asked)))

    def deepen(self, workload: str, settings: Settings, summary: Summary) -> None:
        """Rest the answer on the newest profile, which is of this workload and these settings."""
        self._requests.put(lambda: self._fold.deepen(workload, settings, summary))

    def memory_owners(self) -> int:
        """Record two steps to find the owners of device memory."""
        return self._request(lambda number: self._send(Memory(id=number)))

    def stop(self) -> int:
        """Have the worker finish its step and exit; it is killed if that takes too long.

        A user's command is interrupted as by Ctrl-C. A second call terminates it, a third kills it.
        """
        return self._request(self._stop)

    def type(self, text: str) -> None:
        """Type on the terminal of the user's command."""
        self._requests.put(
            lambda: self._training.type(text) if self._training is not None else None
        )

    def leave(self) -> None:
        """Complete the recording and let the user's command run on, unwatched; end an A/B."""

        def leave() -> None:
            self._end_comparison("the dashboard was left")
            self._end()

        self._requests.put(leave)

    def restart(self, plan: Plan) -> int:
        """Kill the worker and start another. Call from the main thread. Raises WorkerError."""
        if not self._thread.is_alive():
            raise WorkerError("gpudash itself failed: quit and start it again")
        training = self._start_source(plan)
        self.plan = plan

        def replace(_number: int) -> None:
            self._read_training()  # its last messages
            self._cancel_comparison("the training was restarted")
            self._release()
            for source in self._beside:
                source.forget()
            self._emit(
                State(
                    at_s=self._clock(),
                    phase="starting",
                    workload=plan.workload,
                    settings=plan.settings,
                    requested=plan.settings,
                )
            )
            self._emit(plan)
            self._adopt(training)

        return self._request(replace)

    def conduct(self, experiment: Experiment) -> int:
        """Run a comparison or a sweep as soon as the worker is ready; it ends another one."""
        return self._request(lambda _number: self._conductor.conduct(experiment, self._state))

    def compare(self, question: Question, *, goes_on: bool = False) -> int:
        """Run an A/B comparison; its verdict is kept among the snapshot's.

        With `goes_on` it goes on with the pairs of the last one, if that asked the same.
        """
        question = msgspec.structs.replace(question, energy=question.energy or self._meters)

        def begin(_number: int) -> None:
            last = self._comparison if goes_on else None
            if last is None:
                known = Comparison(question, self._known_starts)
            else:
                known = last.with_more(question, self._state)
            self._comparison = known
            self._conductor.conduct(known, self._state)

        return self._request(begin)

    def rehearse(self) -> int:
        """Time levers on the newest batch, without moving any."""
        return self._request(lambda number: self._send(Rehearse(id=number)))

    def slow(self, step_ms: float) -> int:
        """Slow the parts of a step, which takes so long, in turns; of several ranks, rank 0's."""
        return self.conduct(SlowingTrial(step_ms))

    def end_comparison(self) -> int:
        """End a comparison; the worker returns to the levers from before."""

        def end(number: int) -> None:
            self._cancel_comparison("ended")
            self._send(Blocks(id=number, run=self._conductor.run, blocks=()))

        return self._request(end)

    def new_row(self) -> None:
        """Begin a new row of the results table with the active settings."""
        self._requests.put(lambda: self._emit(NewRow()))

    def begin_sink(
        self, name: str, target: str | Path = "-", *, force: bool = False, every_step: bool = False
    ) -> None:
        """Hand messages and rows to a sink from now on; a recording has a CSV's path as `target`.

        With `every_step` a recording's log holds single steps and readings; `force` overwrites its
        files. Raises UsageError, and RecordingError if the files cannot be created.
        """
        if self._ended.is_set():
            raise RecordingError("nothing is running to record: restart the training first")
        if self._sinks.holds(name, str(target)):
            raise RecordingError(f"{shown(target)} is being recorded")
        origin = self._origin(every_step=every_step)
        sink = opener(name)(str(target), origin, force=force)
        sink.connect(self._track)

        def begin() -> None:
            account = self._fold.time.settled()
            self._sinks.begin(name, str(target), sink, origin.began_s, account)

        self._requests.put(begin)

    def _track(self, figures: Figures) -> None:
        """Hand figures to the tracker in the training's process; called on a sink's thread."""
        self._requests.put(
            lambda: self._training.track(figures) if self._training is not None else None
        )

    def _origin(self, *, every_step: bool) -> Origin:
        return Origin(
            began_s=self._clock(),
            began_utc=datetime.now(UTC),
            interval_s=self._interval_s,
            every_step=every_step,
            command=self._command,
            set_by=self._set_by,
            machine=platform.node(),
            versions={"gpudash": gpudash.__version__},
        )

    def stop_recording(self) -> None:
        """Complete the CSV and close it."""
        self._requests.put(
            lambda: self._sinks.end("recording", self._clock(), self._fold.time.account())
        )

    def finish_sink(self, name: str) -> None:
        """Wait until a sink of the closed session has written all, however slow it is."""
        self._sinks.wait_for(name)

    def close(self) -> None:
        """End everything, complete the recording and wait for that; may be called twice."""
        with self._close_lock:
            if self._closed:
                return
            self._closing = True
            self._requests.wake()
            if self._thread.ident is not None:
                self._thread.join()
            elif not self._ended.is_set():  # never started: at most sinks were requested
                self._requests.obey()
                if self._training is None and not self._greeted:
                    self._sinks.discard()
                self._end()
            self._sinks.wait(PATIENCE_S)
            for source in self._beside:
                source.close()
            self._closed = True
            self._requests.close()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the worker's end; return whether it has ended."""
        return self._ended.wait(timeout_s)

    def _request(self, request: Callable[[int], None]) -> int:
        """Queue a request to the training; return its id."""
        number = next(self._ids)

        def take() -> None:
            self._last_command = number
            request(number)

        self._requests.put(take)
        return number

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
        """Release the source and complete the recordings."""
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
        """Hand a message to the sinks first, then fold it."""
        from_rank_0 = envelope.source == "training" and not envelope.rank
        if isinstance(envelope.body, Hello) and from_rank_0:
            if self._greeted:  # a replay starts again from the beginning
                self._begin(envelope.sent_s)
                self._notify(lambda listener: listener.on_rewind())
            self._greeted, self._can = True, envelope.body.can
        stamped = self._fold.stamp(envelope)
        if stamped is not None:
            self._take_stamped(stamped)

    def _take_stamped(self, envelope: Envelope) -> None:
        self._sinks.take(envelope)
        self._hangs.take(envelope)
        if isinstance(envelope.body, State) and envelope.body.process is not None:
            for source in self._beside:
                source.watch(envelope.body.process, envelope.rank)
        if envelope.rank and isinstance(envelope.body, State | Progress | HostReading):
            self._take_rank(envelope.rank, envelope.body)
        if not envelope.rank:
            self._act_on(envelope.body)
        self._fold.take(envelope)
        if not envelope.rank:
            self._conductor.fold(envelope.body, self._state)

    def _take_rank(self, rank: int, body: State | Progress | HostReading) -> None:
        """Note another rank's state, steps and processes, which rank 0's views do not use."""
        if isinstance(body, State) or self._intervals is not None:  # else no recording needs them
            self._rank_tracks.take(rank, body)

    def _emit(self, event: Event) -> None:
        """Treat the session's own events as messages too, so that a log holds all that is shown."""
        self._take_stamped(self._fold.stamp_own(self._of_session(event)))

    def _of_session(self, event: Event) -> Envelope:
        now_s = self._clock()
        return Envelope(source="session", seq=next(self._said), sent_s=now_s, body=event)

    def _act_on(self, item: Event | Reading) -> None:
        """Act on a message of rank 0, and write the rows that it completes."""
        match item:
            case Printed() if "type" in self._can or self._joined:  # a script's is not for the log
                self._notify(lambda listener: listener.on_output(item.lines, item.replaces))
            case Printed():
                self._log(item.lines)
            case State():
                self._turn(item)
            case Refused() | Notice() | MemoryOwners():
                self._log(_words(item))  # in full: a status line may be too short
        if self._intervals is not None:
            self._sinks.write(self._intervals.fold(item))

    def _turn(self, state: State) -> None:
        """Note the training's next state."""
        before, self._state = self._state, state
        if state.process is not None and state.starts_after(before):
            if self._intervals is None and "record" in self._can:
                ready_s = state.process.ready_s
                self._intervals = Intervals(ready_s, self._interval_s, self._rank_tracks)
            self._log([note.text for note in state.notes])
        if state.failure is not None and state.failure != before.failure:
            self._notify_failure(state.failure)

    def _send_blocks(self, run: int, blocks: tuple[Block, ...]) -> None:
        self._send(Blocks(id=next(self._ids), run=run, blocks=blocks))

    def _say(self, event: Event | None) -> None:
        """Put a finding of the fold into the messages: the rows of a recording cannot show it."""
        if event is not None and "record" in self._can:  # a replay has its own
            self._emit(event)

    def _find(self, now_s: float, hang: Hang | None = None) -> Snapshot:
        """Fold and say what the steps show of the slow rank, then of the answer."""
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
        is_asked = self._training is not None and "stacks" in self._can
        return self._training.stack() if is_asked and self._training is not None else None

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
        """End a running comparison: a training that goes on returns to its levers."""
        if self._cancel_comparison(reason):
            self._send_blocks(self._conductor.run, ())

    def _cancel_comparison(self, reason: str) -> bool:
        """End a running comparison, and log what it has found; return whether there was one."""
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
        """End the training; `why` is said unless it has said so itself."""
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
        """Close the source of the training, if there is one."""
        if self._training is not None:
            self._training.close()
            self._training = None

    # ── sinks ───────────────────────────────────────────────────────────────────────────

    def _complete_sinks(self) -> None:
        """Write the remaining rows and close the sinks: this worker has ended."""
        if self._intervals is not None:
            in_order = self._state.phase in ("finished", "stopped")
            ended_s = self._state.since_s if in_order else self._clock()
            self._sinks.write(self._intervals.close(ended_s))
            self._intervals = None
        self._sinks.close(self._fold.time.account())

    def _tell_failure(self, error: RecordingError) -> None:
        """Put the failure of a sink into the messages; it may come from the sink's thread."""
        if isinstance(error, ReaderGoneError):  # as a reader of a pipe may
            return
        if threading.get_ident() == self._thread.ident:
            self._emit(Notice(text=str(error)))
        else:
            self._requests.put(lambda: self._emit(Notice(text=str(error))))


def _words(event: Refused | Notice | MemoryOwners) -> Sequence[str]:
    """Return the log lines of an event."""
    if isinstance(event, MemoryOwners):
        return [owners_title(event), *owner_lines(event)]
    return [event.text if isinstance(event, Notice) else event.reason]
