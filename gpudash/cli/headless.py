"""Run without a screen: one progress line on a terminal, plain lines in a pipe."""

import argparse
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TextIO

from gpudash.cli.stdout import CLEAR_LINE, complain, tell
from gpudash.compare.energy import money, of_a_million
from gpudash.errors import Exit, ReaderGoneError
from gpudash.format import cores, figure, percent, plain, steps
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import TRAINING_ENDED, Failed
from gpudash.ranks import hangs
from gpudash.recording.files import shown
from gpudash.run.session import Session
from gpudash.run.source import Source
from gpudash.run.telemetry_source import TelemetrySource
from gpudash.snapshot import ENDED, KEPT_LINES, Snapshot, silence, unreadable

PIPE_EVERY_S = 5.0
"""Seconds between progress lines that do not go to a terminal."""
REDRAW_S = 0.2
OPTIONS = {
    "interval": "interval_s",
    "rate": "rate_hz",
    "command": "command",
    "set_by": "set_by",
}
"""Options of the command line that a session has, too."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run_headless(
    session: Session, path: Path | None, rows: str | None = None, *, quiet: bool = False
) -> int:
    """Record to `path`, or send rows to standard output by this sink.

    Return 0 also if interrupted, or if the reader of standard output has gone; 2 if the settings
    are not possible; 1 for other failures.
    """
    sink, where = rows or "recording", "to standard output" if path is None else f"to {shown(path)}"
    if rows is not None:
        session.begin_sink(rows)
    training = StartedTraining(quiet=quiet)
    training.follow(session, progress_line, lambda: sink in session.sink_failures)
    snapshot = training.news.snapshot
    if not training.interrupted:
        session.finish_sink(sink)
    if session.failure is None and isinstance(session.sink_failures.get(sink), ReaderGoneError):
        return Exit.DONE
    for clause in unreadable(snapshot.skipped_samples):
        complain(clause)
    kept = f"; recorded until then {where}" if session.has_rows(sink) else ""
    code = complain_of_failures(session, kept)
    if code == Exit.DONE and not quiet:
        how = "interrupted after" if training.interrupted else "trained"
        rate = figure(session.steps_per_s)
        trained = f"{how} {steps(snapshot.total_steps)}, {rate} steps/s"
        complain("; ".join([trained, f"recorded {where}", *last_clauses(session, snapshot)]))
    return code


def last_clauses(session: Session, snapshot: Snapshot) -> Iterator[str]:
    """Yield what limited the run, and what it cost, as far as known."""
    clauses = (session.limits.main(), cost_clause(session, snapshot, session.price))
    return filter(None, clauses)


def cost_clause(session: Session, snapshot: Snapshot, price: float | None) -> str:
    """Return the cost of a million samples at the whole run's rate; empty if not known."""
    rate, samples = session.steps_per_s, snapshot.total_samples
    if price is None or not rate or not samples or not snapshot.total_steps:
        return ""
    samples_per_s = rate * samples / snapshot.total_steps
    cost = of_a_million(price, len(snapshot.ranks), samples_per_s)
    return f"a million samples cost {money(cost)}"


def complain_of_failures(session: Session, kept: str = "") -> int:
    if session.failure is not None:
        return complain_of_failure(session.failure, kept)
    for error in session.sink_failures.values():
        complain(f"gpudash: {error}")
    return Exit.FAILED if session.sink_failures else Exit.DONE


def complain_of_failure(failure: Failed, kept: str = "") -> int:
    complain(f"gpudash: {failure.sentence}{kept}")
    return exit_of(failure)


def exit_of(failure: Failed) -> int:
    """Return 2 if the settings are not possible."""
    return Exit.REFUSED if failure.kind in ("bad_setting", "out_of_memory") else Exit.FAILED


def interruptions(arrived: list[int]) -> AbstractContextManager[None]:
    """Collect signals that would end gpudash. An ignored SIGHUP stays ignored, as under nohup."""
    outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    taken = [number for number in SIGNALS if number != signal.SIGHUP or not outlives]
    return handled(taken, lambda number, _frame: arrived.append(number))


@contextmanager
def handled(signals: Iterable[int], obey: Callable[[int, object], None]) -> Iterator[None]:
    before = {number: signal.signal(number, obey) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class News:
    """Listener that keeps news until the main thread prints them; with `quiet`, only errors."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.snapshot = Snapshot()
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    def on_snapshot(self, snapshot: Snapshot, /) -> None:
        self.snapshot = snapshot

    def on_log(self, lines: Sequence[str], /) -> None:
        if not self.quiet:
            self.lines.extend(lines)

    def on_output(self, lines: Sequence[str], _replaces: int, /) -> None:
        self.on_log(lines)

    def on_rewind(self) -> None:
        self.lines.clear()

    def on_failure(self, failure: Failed, /) -> None:
        if failure.kind == "error":
            self.lines.extend(failure.traceback.splitlines())


class Printer:
    """Prints progress: one redrawn line on a terminal, a line now and then elsewhere."""

    def __init__(
        self, stream: TextIO, line: Callable[[Snapshot], str], *, shared: bool = False
    ) -> None:
        """`shared`: a script's own progress bar has the terminal's last line."""
        self._stream = stream
        self._progress_line = line
        self._on_terminal = stream.isatty() and not shared
        self._printed, self._state = "", ""
        self._printed_at_s = float("-inf")

    def show(self, news: News) -> None:
        while news.lines:
            self.line(news.lines.popleft())
        snapshot, now_s = news.snapshot, time.monotonic()
        text = self._progress_line(snapshot) if snapshot.state != "failed" else ""
        if not text:
            return  # the summary follows
        if self._on_terminal:
            self._write(CLEAR_LINE + text[: shutil.get_terminal_size().columns - 1])
        elif text != self._printed and (
            now_s - self._printed_at_s >= PIPE_EVERY_S or snapshot.state != self._state
        ):
            self._printed, self._state, self._printed_at_s = text, snapshot.state, now_s
            self._write(text + "\n")

    def line(self, text: str) -> None:
        """Print a line as plain text, whatever it contains."""
        clear = CLEAR_LINE if self._on_terminal else ""
        self._write(f"{clear}{plain(text)}\n")

    def end(self) -> None:
        if self._on_terminal:
            self._write("\n")

    def _write(self, text: str) -> None:
        tell(self._stream, text)  # the recording goes on


class StartedTraining:
    """A workload, followed to its end: it stops at a signal, and need not answer a second one."""

    is_ours = True
    """Whether gpudash may kill it. Else the terminal is its own, and so are its log and output."""
    source: Mapping[str, Any] = {}
    """How a session starts it, unless as it starts a workload."""

    def __init__(self, *, quiet: bool) -> None:
        self.news = News(quiet=quiet or not self.is_ours)
        self._quiet = quiet
        self._signals: list[int] = []
        self._reported_hang: tuple[str, ...] = ()

    @property
    def interrupted(self) -> bool:
        return bool(self._signals)

    def follow(
        self,
        session: Session,
        line: Callable[[Snapshot], str] = lambda _: "",
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Have the training end once `over()` is true, or after a signal; close the session."""
        line = (lambda _: "") if self._quiet else line
        printer = Printer(sys.stderr, line, shared=self._quiet or not self.is_ours)
        is_ending = False
        with self.taking_signals():
            session.start(self.news)
            try:
                while not (session.wait(REDRAW_S) or (self.is_ours and len(self._signals) > 1)):
                    if not is_ending and (self.interrupted or over()):
                        is_ending = True
                        self.ask_to_end(session)
                    printer.show(self.news)
                    self._report_hang()
            finally:
                session.close()
                self.wait()
        printer.show(self.news)
        printer.end()

    def taking_signals(self) -> AbstractContextManager[None]:
        return interruptions(self._signals)

    def outcome(self, failure: Failed | None) -> tuple[str, int | None]:
        """Return why there was no more, and the exit code of one that failed by itself."""
        if failure is None:
            return TRAINING_ENDED, None
        return failure.sentence, exit_of(failure)

    def wait(self) -> int:
        """Wait until what was started has ended; return its exit code."""
        return Exit.DONE

    def close(self) -> None:
        """Release what was made for it, once its session is closed."""

    def _report_hang(self) -> None:
        hang = self.news.snapshot.hang
        clauses = hangs.clauses(hang) if hang is not None else ()
        if hang is not None and hang.stacks and clauses != self._reported_hang:
            complain(f"gpudash: {hangs.title(hang)}: {', '.join(clauses)}")
        self._reported_hang = clauses

    def ask_to_end(self, session: Session) -> None:
        if self.interrupted:
            self.news.on_log(("stopping",))
        session.stop()


def session_of(plan: Plan, arguments: argparse.Namespace, **source: Any) -> Session:
    """Return a session with those of its options that the verb has."""
    given = vars(arguments)
    how = {of: given[name] for name, of in OPTIONS.items() if name in given}
    session = Session(plan, **how, **{"beside": meters(arguments)} | source)
    session.price = given.get("price")
    return session


def meters(arguments: argparse.Namespace) -> Sequence[Source] | None:
    """Return what reads the devices if energy was asked for; None: as always."""
    return (TelemetrySource(energy=True),) if getattr(arguments, "energy", False) else None


def progress_line(snapshot: Snapshot) -> str:
    if snapshot.state in ENDED:
        return ""
    if snapshot.state == "starting":
        return f"{snapshot.workload}: {snapshot.status_line}"
    of = f"/{snapshot.planned_steps}" if snapshot.planned_steps else ""
    parts = [
        f"{snapshot.workload}: {snapshot.total_steps}{of} steps",
        f"{figure(snapshot.steps_per_s)} steps/s",
    ]
    if snapshot.gpu is not None:
        parts.append(f"GPU {percent(snapshot.gpu.number('gpu_util_pct'))}")
    elif snapshot.host is not None:
        parts.append(f"CPU {cores(snapshot.host.number('cpu_pct'))}")
    left_s = _time_left_s(snapshot)
    if left_s is not None:
        parts.append(f"{left_s:.0f} s left")
    if snapshot.state != "training":
        parts.append(snapshot.status_line)
    return ", ".join([*parts, *silence(snapshot)])


def _time_left_s(snapshot: Snapshot) -> float | None:
    """Return None without a plan or a rate."""
    if snapshot.planned_steps and snapshot.steps_per_s:
        return (snapshot.planned_steps - snapshot.total_steps) / snapshot.steps_per_s
    if snapshot.planned_s and snapshot.training_s is not None:
        return max(0.0, snapshot.planned_s - snapshot.training_s)
    return None
