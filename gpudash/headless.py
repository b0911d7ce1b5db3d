"""A recorded run without a screen: one progress line on a terminal, plain lines in a pipe."""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from gpudash.records import Failed
from gpudash.session import Session
from gpudash.snapshot import Snapshot

PIPE_EVERY_S = 5.0
"""A log file wants a line now and then, not four a second."""
CLEAR_LINE = "\r\x1b[2K"


def run_headless(session: Session, path: Path) -> int:
    """Train to the plan's end or to Ctrl-C, recording to `path`. Returns the exit code.

    0: the plan was fulfilled, or the run was interrupted and the file is complete. 2: the
    settings cannot be. 1: the worker or the recording failed; what was recorded is kept.
    """
    progress = Progress()
    with interruptible() as interrupted:
        session.start(progress)
        while not session.wait(0.2):
            if interrupted.is_set():
                progress.say("stopping")
                session.stop()
                session.wait(float("inf"))
                break
    session.close()
    progress.end()
    return _conclude(session, path, progress, interrupted=interrupted.is_set())


def _conclude(session: Session, path: Path, progress: "Progress", *, interrupted: bool) -> int:
    snapshot = progress.newest
    if session.failure is not None:
        kept = f"; recorded until then to {path}" if path.exists() else ""
        print(f"gpudash: {session.failure.sentence}{kept}", file=sys.stderr)
        return 2 if session.failure.kind in ("bad_setting", "out_of_memory") else 1
    if session.recording_failure is not None:
        print(f"gpudash: {session.recording_failure}", file=sys.stderr)
        return 1
    how = "interrupted after" if interrupted else "trained"
    print(f"{how} {snapshot.total_steps} steps; recorded to {path}", file=sys.stderr)
    return 0


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into an event; a second Ctrl-C is the usual one."""
    asked = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """The listener of a headless run: says on stderr how far it is."""

    def __init__(self) -> None:
        self.newest = Snapshot()
        self._on_terminal = sys.stderr.isatty()
        self._said = ""
        self._said_at_s = float("-inf")

    def on_snapshot(self, snapshot: Snapshot, /) -> None:
        """Show it, in place or now and then."""
        self.newest = snapshot
        now_s = time.monotonic()
        if snapshot.state == "failed":
            return  # the last line says why
        if self._on_terminal:
            self._write(CLEAR_LINE + progress_line(snapshot))
        elif now_s - self._said_at_s >= PIPE_EVERY_S or snapshot.state != self._said:
            self._said, self._said_at_s = snapshot.state, now_s
            self._write(progress_line(snapshot) + "\n")

    def on_log(self, lines: Sequence[str], /) -> None:
        """Print what the worker printed, above the progress line."""
        clear = CLEAR_LINE if self._on_terminal else ""
        self._write("".join(f"{clear}{line}\n" for line in lines))

    def on_failure(self, failure: Failed, /) -> None:
        """Print the traceback of what nobody expected."""
        if failure.kind == "error":
            self.on_log(failure.traceback.splitlines())

    def say(self, text: str) -> None:
        """Print a line of our own."""
        self.on_log([text])

    def end(self) -> None:
        """Leave the progress line behind."""
        if self._on_terminal:
            self._write("\n")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def progress_line(snapshot: Snapshot) -> str:
    """Return steps, steps/s, utilisation and time left, as far as they are known."""
    if snapshot.state == "starting":
        return f"{snapshot.workload}: {snapshot.status}"
    of = f"/{snapshot.planned_steps}" if snapshot.planned_steps else ""
    parts = [
        f"{snapshot.workload}: {snapshot.total_steps}{of} steps",
        f"{_number(snapshot.steps_per_s)} steps/s",
    ]
    if snapshot.gpu is not None:
        parts.append(f"GPU {_number(snapshot.gpu.util_pct)} %")
    elif snapshot.host is not None:
        parts.append(f"CPU {_number(snapshot.host.cpu_pct)} % of a core")
    left_s = time_left_s(snapshot)
    if left_s is not None:
        parts.append(f"{left_s:.0f} s left")
    if snapshot.state != "training":
        parts.append(snapshot.status)
    return ", ".join(parts)


def time_left_s(snapshot: Snapshot) -> float | None:
    """Return the seconds until the plan is fulfilled; None without a plan or a rate."""
    if snapshot.state == "finished":
        return None
    if snapshot.planned_steps and snapshot.steps_per_s:
        return (snapshot.planned_steps - snapshot.total_steps) / snapshot.steps_per_s
    if snapshot.planned_s:
        return max(0.0, snapshot.planned_s - snapshot.elapsed_s)
    return None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
