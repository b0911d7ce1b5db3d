"""A command of the user's that has the terminal, the streams and the signals as if it ran alone."""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from gpudash import rendezvous
from gpudash.commands.headless import REDRAW_S, SIGNALS, News, Printer, handled
from gpudash.commands.stdout import complain
from gpudash.errors import UsageError
from gpudash.format import figure, steps
from gpudash.protocol import Plan
from gpudash.recording.files import shown
from gpudash.recording.provenance import plain
from gpudash.run import runs
from gpudash.run.held import Child
from gpudash.run.nodes import Nodes
from gpudash.run.relay import Relay
from gpudash.run.script import HEADLESS, ScriptSource
from gpudash.run.session import Session
from gpudash.run.user_command import UserCommand
from gpudash.snapshot import Hang, Snapshot
from gpudash.views import hangs

IMPATIENCE_S: tuple[float, ...] = (0.0, 10.0, 30.0)
"""When a command that was started for a measurement is asked to end, terminated and killed."""


def plan_of(command: UserCommand) -> Plan:
    """Return what is run, as a session is told of it."""
    return Plan(workload=command.name, settings={}, command=tuple(map(plain, command.argv)))


def begin() -> rendezvous.Rendezvous:
    """Return a place for a run, and remove what others have left. Raises UsageError."""
    runs.living()
    try:
        return rendezvous.begin()
    except OSError as error:
        raise UsageError(
            f"no private folder for the run: {error.filename}: {error.strerror}; "
            "valid: XDG_RUNTIME_DIR or TMPDIR names one that can be written"
        ) from error


def remove(place: rendezvous.Rendezvous) -> None:
    """Remove what nothing was started for."""
    shutil.rmtree(place.path, ignore_errors=True)


def in_shell(code: int) -> int:
    """Return an exit code as a shell shows it."""
    return 128 - code if code < 0 else code


class HeadlessScript:
    """A command that has the terminal, the streams and the signals as if it ran alone."""

    def __init__(
        self,
        command: UserCommand,
        *,
        output_to_stderr: bool = False,
        nodes: Nodes | None = None,
    ) -> None:
        """Make its place. Raises UsageError."""
        self._command, self._place, self._nodes = command, begin(), nodes
        self._output_to_stderr = output_to_stderr
        self._child: Child | None = None
        self.source: ScriptSource | None = None
        """Once it is started."""
        self.news = News(quiet=True)
        self.interrupted = self.was_stopped = False
        self._hang_told: tuple[str, ...] = ()

    @contextmanager
    def session(self, arguments: argparse.Namespace) -> Iterator[Session]:
        """Open a session that starts the command."""
        interval = {"interval_s": arguments.interval} if hasattr(arguments, "interval") else {}
        session = Session(
            plan_of(self._command),
            **interval,
            command=arguments.command,
            set_by=arguments.set_by,
            start_source=self._start,
        )
        try:
            with self._signals_passed_on():
                yield session
        finally:
            session.close()
            if self._child is None:
                remove(self._place)

    def _start(self, _plan: Plan) -> ScriptSource:
        self._child = Child(self._command, self._place, output_to_stderr=self._output_to_stderr)
        self.source = ScriptSource(
            self._command.name, self._child, self._place, can=HEADLESS, nodes=self._nodes
        )
        return self.source

    def run_for(self, relay: Relay) -> None:
        """Run it to its end, watched from another node. Raises WorkerError."""
        with self._signals_passed_on():
            self._child = Child(self._command, self._place)
            with relay.running(self._place):
                code = in_shell(self._wait())
                how = f"exited with {code}" if code else "has ended"
                relay.part(f"{self._command.name} {how}")

    def follow(
        self,
        session: Session,
        over: Callable[[], bool] = lambda: False,
        line: Callable[[Snapshot], str] | None = None,
    ) -> None:
        """Run until the command has ended; from when it is `over()`, have it end.

        `line` says how far it is; without one nothing is said.
        """
        printer = None if line is None else Printer(sys.stderr, line, shared=True)
        session.start(self.news)
        stops, over_since_s, patience_s = 0, None, IMPATIENCE_S
        while not session.wait(REDRAW_S):
            if printer is not None:
                printer.show(self.news)
            self._say_hang(self.news.snapshot.hang)
            if over_since_s is None and over():
                over_since_s = time.monotonic()
                patience_s = IMPATIENCE_S[self.interrupted :]  # it has had its Ctrl-C
            if over_since_s is None or stops == len(patience_s):
                continue
            if time.monotonic() - over_since_s >= patience_s[stops]:
                if not self.interrupted:
                    with suppress(OSError):  # it has ended by itself
                        self._place.end()
                session.stop()
                self.was_stopped = True
                stops += 1
        session.close()
        self._wait()  # whatever became of the session

    def _say_hang(self, hang: Hang | None) -> None:
        """Say once where the processes are that finish no step."""
        told = hangs.clauses(hang) if hang is not None else ()
        if hang is not None and hang.stacks and told != self._hang_told:
            complain(f"gpudash: {hangs.title(hang)}: {', '.join(told)}")
        self._hang_told = told

    def own_failure(self, missing: str) -> int | None:
        """Say that a command which failed by itself leaves this missing; return its exit code.

        None where it has not failed, or was asked to end.
        """
        assert self.source
        if not self.source.exit_code or self.was_stopped or self.interrupted:
            return None
        complain(f"gpudash: no {missing}: {self.source.how_it_ended()}")
        return in_shell(self.source.exit_code)

    def _wait(self) -> int:
        assert self._child
        code = self._child.wait()
        self._child.close()
        return code

    def summary(self, session: Session, record: Path | None) -> str:
        """Return in one line what was seen, and what went wrong."""
        assert self.source
        parts = [self.source.how_it_ended()] if self._wait() else []
        if self.source.started:
            rate = figure(session.steps_per_s)
            parts.append(f"{steps(self.source.total_steps)}, {rate} steps/s")
        else:
            parts.append(self.source.why_no_step())
        if record is not None and session.rows_recorded:
            parts.append(f"recorded to {shown(record)}")
        if session.recording_failure is not None:
            parts.append(str(session.recording_failure))
        if session.failure is not None and session.failure.traceback:  # gpudash's own
            parts.append(session.failure.sentence)
        return f"gpudash: {'; '.join(parts)}"

    def end(self) -> int:
        """Return its exit code; after Ctrl-C die of that, so that a shell's loop ends too."""
        code = self._wait()
        if code == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return in_shell(code)

    def _signals_passed_on(self) -> AbstractContextManager[None]:
        """Have the command decide: it gets what the terminal sends by itself, the rest from us."""

        def pass_on(number: int, _frame: object) -> None:
            self.interrupted = True
            if self._child is not None and number in (signal.SIGTERM, signal.SIGHUP):
                self._child.signal(number)

        # what is ignored, as under nohup, the command ignores too
        heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        return handled(heeded, pass_on)
