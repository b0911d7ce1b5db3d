"""One run: a worker, a sampler, the files it writes and the window that folds it.

The session is the one consumer of both streams. Its thread takes events and samples in
order of arrival, writes the recording first, then folds, then, at the screen's rate, hands
out one frozen snapshot. A screen that is stuck delays neither a step nor a row. Everything
the session does runs on that thread; the methods below leave a request there and return.
"""

import contextlib
import itertools
import os
import selectors
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue

import gpudash
from gpudash.compare.ab import Comparison, Question
from gpudash.compare.experiment import Experiment
from gpudash.errors import RecordingError, WorkerError
from gpudash.protocol import (
    AnyCommand,
    Block,
    Blocks,
    Change,
    Event,
    Failed,
    Finished,
    Pause,
    Plan,
    Reading,
    Refused,
    Resume,
    Settings,
    Started,
    Stop,
)
from gpudash.recording.files import shown
from gpudash.recording.intervals import Intervals
from gpudash.recording.log import Origin
from gpudash.recording.recordings import Recordings
from gpudash.recording.writer import RecordingWriter
from gpudash.run.worker_process import WorkerProcess
from gpudash.snapshot import Listener, Snapshot
from gpudash.telemetry.sampler import Sampler
from gpudash.views.live import LiveView
from gpudash.views.throughput import WholeRun
from gpudash.views.time_breakdown import TimeAccount

INTERVAL_S = 0.5
POLL_S = 0.05
"""How often the thread looks for a dead worker, and for samples, when nothing arrives."""
STOP_TIMEOUT_S = 5.0
"""A worker that was asked to stop is killed after this."""
LAST_WORDS = 20
"""Lines of a worker that died without a word, kept to say why."""


class Session:
    """A run that can be watched, changed, recorded, restarted and ended."""

    def __init__(
        self,
        plan: Plan,
        *,
        interval_s: float = INTERVAL_S,
        rate_hz: float = 4.0,
        command: Sequence[str] = (),
    ) -> None:
        self._plan = plan
        self._interval_s = interval_s
        self._snapshot_every_s = 1.0 / rate_hz
        self._command = tuple(command)
        self._requests: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._ids = itertools.count(1)
        self._samples: SimpleQueue[Reading] = SimpleQueue()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._sampler = Sampler(self._samples.put)
        self._thread = threading.Thread(target=self._run, name="gpudash-session", daemon=True)
        self._link: WorkerProcess | None = None
        self._watched: set[int] = set()
        self._last_word: Finished | Failed | None = None
        self._stop_asked = False
        self._recordings = Recordings(self._tell_recording_failure)
        self._time = TimeAccount()
        self._whole_run = WholeRun()
        self._experiment: Experiment | None = None
        self._experiment_waits = False  # for the worker to be ready
        self._block_runs = 0
        self._intervals: Intervals | None = None
        self._started: Started | None = None
        self._ended = False
        self._closing = False
        self._close_lock = threading.Lock()
        self._closed = False
        self._kill_at_s: float | None = None
        self._last_words: list[str] = []
        self.failure: Failed | None = None
        """How the last worker failed; None while it has not."""
        self.recording_failure: RecordingError | None = None

    @property
    def rows_recorded(self) -> int:
        """Rows written to record files."""
        return self._recordings.rows

    @property
    def steps_per_s(self) -> float | None:
        """Of the present worker's steps after its first one; None before the second."""
        return self._whole_run.steps_per_s

    @property
    def plan(self) -> Plan:
        """What the worker was last started with."""
        return self._plan

    # ── requests, from any thread ───────────────────────────────────────────────────────

    def start(self, listener: Listener) -> None:
        """Start worker, sampler and thread. Call from the main thread. Raises WorkerError."""
        self._listener = listener
        self._live = LiveView(self._plan, time.monotonic())
        self._adopt(WorkerProcess(self._plan))
        self._sampler.start()
        self._thread.start()

    # those that ask something of the training return the id by which a snapshot knows of it

    def change(self, settings: Settings) -> int:
        """Set levers at the next step boundary."""
        return self._request(lambda number: self._send(Change(id=number, settings=settings)))

    def pause(self) -> int:
        """Stop between two steps."""
        return self._request(lambda number: self._send(Pause(id=number)))

    def resume(self) -> int:
        """Go on after `pause`."""
        return self._request(lambda number: self._send(Resume(id=number)))

    def stop(self) -> int:
        """Have the worker finish its step and exit; it is killed if that takes too long."""
        return self._request(self._stop)

    def restart(self, plan: Plan) -> None:
        """Kill the worker and start another. Call from the main thread. Raises WorkerError."""
        if not self._thread.is_alive():
            raise WorkerError("gpudash itself failed: quit and start it again")
        link = WorkerProcess(plan)
        self._plan = plan

        def replace() -> None:
            self._read_worker()  # what it said last
            self._cancel_comparison("the training was restarted")
            self._release()
            self._live.restarted(plan, time.monotonic())
            self._adopt(link)

        self._ask(replace)

    def conduct(self, experiment: Experiment) -> int:
        """Run a comparison or a sweep, as soon as the worker is ready; another one ends."""

        def begin(_number: int) -> None:
            self._experiment, self._experiment_waits = experiment, True
            self._begin_experiment()

        return self._request(begin)

    def compare(self, question: Question) -> int:
        """Run an A/B comparison; its verdict is kept in the table of results."""
        return self.conduct(Comparison(question))

    def end_comparison(self) -> int:
        """Have the worker go back to the levers from before the comparison."""

        def end(number: int) -> None:
            self._cancel_comparison("ended")
            self._send(Blocks(id=number, run=self._block_runs, blocks=()))

        return self._request(end)

    def _cancel_comparison(self, reason: str) -> None:
        if isinstance(self._experiment, Comparison):
            self._experiment.cancel(reason)
            self._experiment_waits = False

    def new_row(self) -> None:
        """Begin a new row of the results table with the settings in force."""
        self._ask(lambda: self._live.new_row())  # noqa: PLW0108  # there is none before the start

    def record(self, path: Path, *, force: bool = False) -> None:
        """Write a CSV from now on. Raises RecordingError where the file cannot be made."""
        if self._ended:
            raise RecordingError("nothing is running to record: restart the training first")
        if self._recordings.holds(path):
            raise RecordingError(f"{shown(path)} is being recorded")
        origin = Origin(
            began_s=time.monotonic(),
            began_utc=datetime.now(UTC),
            interval_s=self._interval_s,
            command=self._command,
            versions={"gpudash": gpudash.__version__},
        )
        recording = RecordingWriter(path, origin, force=force)

        def begin() -> None:
            account = self._time.account()
            self._recordings.begin(recording, self._started, origin.began_s, account)

        self._ask(begin)

    def stop_recording(self) -> None:
        """Complete the CSV and close it."""
        self._ask(lambda: self._recordings.end(time.monotonic(), self._time.account()))

    def close(self) -> None:
        """End everything and complete the recording; waits for it. Closing twice is closing."""
        with self._close_lock:
            if self._closed:
                return
            self._closing = True
            self._wake()
            if self._thread.ident is not None:
                self._thread.join()
            elif not self._ended:  # never started: at most a recording was asked for
                self._obey_requests()
                self._end()
            self._sampler.stop()
            self._closed = True
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the worker's end; return whether it has come."""
        deadline_s = time.monotonic() + timeout_s
        while not self._ended and time.monotonic() < deadline_s:
            time.sleep(min(POLL_S, timeout_s))
        return self._ended

    def _request(self, request: Callable[[int], None]) -> int:
        """Ask something of the training; return the request's id."""
        number = next(self._ids)

        def take() -> None:
            self._live.last_command = number
            request(number)

        self._ask(take)
        return number

    def _ask(self, request: Callable[[], None]) -> None:
        self._requests.put(request)
        self._wake()

    def _wake(self) -> None:
        if not self._closed:
            with contextlib.suppress(BlockingIOError):  # full: it wakes anyway
                os.write(self._wake_write, b"\0")

    # ── the thread ──────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        try:
            self._consume()
            self._obey_requests()
            self._read_worker()  # what arrived while the listener was busy
            self._read_samples()
            self._listener.on_snapshot(self._snapshot(time.monotonic()))  # the last one is whole
        except Exception as error:  # noqa: BLE001  # must not end in silence
            sentence = f"gpudash itself failed: {type(error).__name__}: {error}"
            trace = traceback.format_exc()
            now_s = time.monotonic()
            self.failure = Failed(at_s=now_s, kind="error", sentence=sentence, traceback=trace)
            self._listener.on_failure(self.failure)
            self._live.fold(self.failure, now_s)
            self._listener.on_snapshot(self._live.snapshot(now_s))
            self._recordings.training_failed(self.failure)
            self._recordings.abandon()
        finally:
            self._end()

    def _consume(self) -> None:
        next_snapshot_s = 0.0
        while not self._closing:
            self._selector.select(POLL_S)
            self._obey_requests()
            self._read_worker()
            self._read_samples()
            self._notice_death()
            now_s = time.monotonic()
            if now_s >= next_snapshot_s:
                self._listener.on_snapshot(self._snapshot(now_s))
                next_snapshot_s = now_s + self._snapshot_every_s

    def _end(self) -> None:
        """Leave nothing behind: the last thing that happens, also after a failure."""
        try:
            self._release()
            self._complete_recordings()
        finally:
            self._ended = True

    def _obey_requests(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 1 << 12)
        with contextlib.suppress(Empty):
            while True:
                self._requests.get_nowait()()

    def _read_worker(self) -> None:
        if self._link is None:
            return
        self._link.flush()
        printed = self._link.read_printed()
        if printed:
            self._last_words = (self._last_words + printed)[-LAST_WORDS:]
            self._listener.on_log(printed)
        for event in self._link.read_events():
            self._take(event)
        for fd in set(self._watched) - set(self._link.filenos):  # at its end: always readable
            self._selector.unregister(fd)
            self._watched.remove(fd)

    def _read_samples(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                self._take(self._samples.get_nowait())

    def _take(self, item: Event | Reading) -> None:
        """Write first, then fold."""
        match item:
            case Started():
                self._started = item
                self._sampler.watch(item.pid, item.device.uuid)
                self._intervals = self._intervals or Intervals(item.at_s, self._interval_s)
                self._recordings.started(item)
                self._listener.on_log([note.text for note in item.notes])
            case Refused():
                self._listener.on_log([item.reason])  # whole: a status line may be too short
            case Finished():
                self._last_word = item
            case Failed():
                self._last_word = self.failure = item
                self._recordings.training_failed(item)
                self._listener.on_failure(item)
        if self._intervals is not None:
            self._recordings.write(self._intervals.fold(item))
        self._live.fold(item, time.monotonic())
        self._time.fold(item)
        self._whole_run.fold(item)
        self._fold_experiment(item)

    def _fold_experiment(self, item: Event | Reading) -> None:
        if self._experiment is None:
            return
        if self._experiment_waits:
            self._begin_experiment()
            return
        known = self._experiment.verdict
        blocks = self._experiment.fold(item)
        if blocks is not None:
            self._send_blocks(blocks)
        found = self._experiment.verdict
        if found is not None and found != known:
            self._live.verdict(found)

    def _begin_experiment(self) -> None:
        if self._experiment is None or self._started is None:
            return
        self._experiment_waits = False
        self._block_runs += 1
        self._send_blocks(self._experiment.begin(self._started, self._block_runs))

    def _send_blocks(self, blocks: tuple[Block, ...]) -> None:
        self._send(Blocks(id=next(self._ids), run=self._block_runs, blocks=blocks))

    def _snapshot(self, now_s: float) -> Snapshot:
        self._live.gpu_missing = self._sampler.gpu_missing
        self._live.recording = self._recordings.shown
        self._live.comparison = self._experiment.shown() if self._experiment else None
        self._live.account = self._time.account()
        return self._live.snapshot(now_s)

    # ── the worker ──────────────────────────────────────────────────────────────────────

    def _adopt(self, link: WorkerProcess) -> None:
        self._link = link
        self._last_word = None
        self._last_words = []
        self._stop_asked = False
        self._kill_at_s = None
        self._started = None
        self._ended = False
        self.failure = None
        self._watched = set(link.filenos)
        for fd in self._watched:
            self._selector.register(fd, selectors.EVENT_READ)

    def _send(self, command: AnyCommand) -> None:
        if self._link is not None:
            self._live.sent(command)
            self._link.send(command)

    def _stop(self, number: int) -> None:
        self._stop_asked = True
        self._send(Stop(id=number))
        # a worker that is still importing reads no commands
        patience_s = STOP_TIMEOUT_S if self._started else 0.0
        self._kill_at_s = time.monotonic() + patience_s

    def _notice_death(self) -> None:
        if self._link is None:
            return
        if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            self._link.kill()
        code = self._link.exit_code()
        if code is None:
            return
        self._read_worker()  # what it said last
        if self._stop_asked:
            self._live.stopped(time.monotonic())
        elif self._last_word is None:
            failed = Failed(at_s=time.monotonic(), kind="error", sentence=self._obituary(code))
            self._take(failed)
        self._release()
        self._complete_recordings()
        self._ended = True

    def _obituary(self, code: int) -> str:
        if code < 0:  # what it printed before has nothing to do with it
            return f"the training process was killed by {signal.Signals(-code).name}"
        words = [line.strip() for line in self._last_words if line.strip()]
        return f"the training process exited with {code}" + (f": {words[-1]}" if words else "")

    def _release(self) -> None:
        """Kill and reap the worker, if there is one."""
        if self._link is None:
            return
        for fd in self._watched:
            self._selector.unregister(fd)
        self._link.close()
        self._link = None

    # ── recordings ──────────────────────────────────────────────────────────────────────

    def _complete_recordings(self) -> None:
        """Write what is left and close: nothing more can come of this worker."""
        if self._intervals is not None:
            ended = self._last_word.at_s if isinstance(self._last_word, Finished) else None
            self._recordings.write(self._intervals.close(ended or time.monotonic()))
            self._intervals = None
        if self.failure is not None:
            self._recordings.discard_empty()  # or the next try would need --force
        self._recordings.close(self._time.account())

    def _tell_recording_failure(self, error: RecordingError) -> None:
        self.recording_failure = error
        self._live.tell(str(error))
        self._listener.on_log([str(error)])
