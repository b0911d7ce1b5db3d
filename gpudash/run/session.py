"""Conduct one run from any thread: methods queue requests, and the session's thread obeys."""

import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import gpudash
from gpudash.availability import NOTHING_RUNS
from gpudash.compare.ab import Comparison, Question
from gpudash.compare.experiment import Experiment
from gpudash.compare.slowing import SlowingTrial
from gpudash.diagnosis.limits import Limits
from gpudash.errors import RecordingError, WorkerError
from gpudash.protocol.commands import (
    Blocks,
    Change,
    Figures,
    Memory,
    Pause,
    Plan,
    Profile,
    Rehearse,
    Resume,
)
from gpudash.protocol.records import Settings
from gpudash.protocol.session import NewRow
from gpudash.protocol.training import Failed, State
from gpudash.recording.files import shown, text_of
from gpudash.recording.log import Origin
from gpudash.run.session_thread import SessionThread
from gpudash.sinks.sink import opener
from gpudash.snapshot import Listener
from gpudash.trace.summary import Summary

PATIENCE_S = 1.0
"""Seconds to wait for slow sinks at the end. One that hangs is left behind."""


class Session(SessionThread):
    """A run that can be watched, changed, recorded, restarted and ended."""

    @property
    def failure(self) -> Failed | None:
        return self._state.failure

    @property
    def sink_failures(self) -> Mapping[str, RecordingError]:
        return self._sinks.failures

    def has_rows(self, sink: str) -> bool:
        return self._sinks.has_rows(sink)

    @property
    def steps_per_s(self) -> float | None:
        return self._fold.steps_per_s

    @property
    def limits(self) -> Limits:
        return self._fold.limits

    # ── requests, from any thread ───────────────────────────────────────────────────────

    def start(self, listener: Listener, began_s: float | None = None) -> None:
        """Call from the main thread. Raises WorkerError. A failed listener is not called again.

        `began_s` is when the run began; None: it begins now.
        """
        self._begin(self._clock() if began_s is None else began_s)
        self._adopt(self._start_source(self.plan))
        self._listener = listener
        self._thread.start()

    # requests to the training return the id that appears in a later snapshot

    def change(self, settings: Settings) -> int:
        """Set levers at the next step boundary."""
        return self._request(lambda number: self._send(Change(id=number, settings=settings)))

    def pause(self) -> int:
        return self._request(lambda number: self._send(Pause(id=number)))

    def resume(self) -> int:
        return self._request(lambda number: self._send(Resume(id=number)))

    def profile(self, steps: int, path: Path) -> int:
        """Raise UsageError if the file's name is not valid text."""
        asked = text_of(path.absolute())  # the training may have another current folder
        return self._request(lambda number: self._send(Profile(id=number, steps=steps, path=asked)))

    def deepen(self, workload: str, settings: Settings, summary: Summary) -> None:
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
        """Begin as soon as the worker is ready; another experiment is ended."""
        return self._request(lambda _number: self._conductor.conduct(experiment, self._state))

    def compare(self, question: Question, *, goes_on: bool = False) -> int:
        """With `goes_on`, go on with the pairs of the last one, if that asked the same."""
        question = msgspec.structs.replace(question, energy=question.energy or self.meters)

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
        """`step_ms` is how long a step takes. Of several ranks, rank 0's parts are slowed."""
        return self.conduct(SlowingTrial(step_ms))

    def end_comparison(self) -> int:
        """Let the worker return to the levers from before."""

        def end(number: int) -> None:
            self._cancel_comparison("ended")
            self._send(Blocks(id=number, run=self._conductor.run, blocks=()))

        return self._request(end)

    def new_row(self) -> None:
        self._requests.put(lambda: self._emit(NewRow()))

    def begin_sink(
        self, name: str, target: str | Path = "-", *, force: bool = False, every_step: bool = False
    ) -> None:
        """Hand over messages and rows from now on; a recording's `target` is its CSV's path.

        With `every_step` its log has a record of each step. Raises UsageError, RecordingError.
        """
        if self._ended.is_set():
            raise RecordingError(NOTHING_RUNS["record"].reason)
        if self._sinks.holds(name, str(target)):
            raise RecordingError(f"{shown(target)} is being recorded")
        origin = self._origin(every_step=every_step)
        sink = opener(name)(str(target), origin, force=force)
        sink.connect(self._track)

        def begin() -> None:
            account = self._fold.time.settled()
            self._sinks.begin(name, str(target), sink, origin, account)

        self._requests.put(begin)

    @property
    def meters(self) -> bool:
        """Whether the ticks of energy counters come in: what is compared has joules then."""
        return any(one.meters for one in self._beside)

    def _track(self, figures: Figures) -> None:
        """Run on a sink's thread."""
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
        self._requests.put(
            lambda: self._sinks.end("recording", self._clock(), self._fold.time.account())
        )

    def finish_sink(self, name: str) -> None:
        """Wait until a sink of the closed session has written all, however slow it is."""
        self._sinks.wait_for(name)

    def close(self) -> None:
        """Complete the recording and wait for that; may be called twice."""
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
        return self._ended.wait(timeout_s)

    def _request(self, request: Callable[[int], None]) -> int:
        """Queue a request to the training; return its id."""
        number = next(self._ids)

        def take() -> None:
            self._last_command = number
            request(number)

        self._requests.put(take)
        return number
