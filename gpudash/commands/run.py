"""`gpudash run`: a command of the user's, on the dashboard or with its streams untouched."""

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from gpudash import rendezvous
from gpudash.commands.dashboard import show
from gpudash.commands.headless import REDRAW_S, SIGNALS, News, Printer, handled
from gpudash.commands.stdout import complain, on_terminal, say
from gpudash.errors import UsageError
from gpudash.format import figure, steps
from gpudash.protocol import Plan
from gpudash.recording.files import shown
from gpudash.recording.provenance import plain
from gpudash.run import runs
from gpudash.run.addresses import to_connect, to_listen
from gpudash.run.handshake import VARIABLE, given_token, new_token
from gpudash.run.held import Child, keep
from gpudash.run.nodes import Nodes
from gpudash.run.relay import Relay
from gpudash.run.script import HEADLESS, ScriptSource
from gpudash.run.session import Session
from gpudash.run.source import Source
from gpudash.run.user_command import UserCommand, understand
from gpudash.snapshot import Hang, Snapshot
from gpudash.views import hangs

LAST_LINES = 20
"""Of what a command printed, left on the terminal when the dashboard closes after its end."""
IMPATIENCE_S: tuple[float, ...] = (0.0, 10.0, 30.0)
"""When a command that was started for a measurement is asked to end, terminated and killed."""


def main(arguments: argparse.Namespace) -> int:
    """Run it. Returns its exit code."""
    command = understand(arguments.user_command, arguments.python)
    record: Path | None = arguments.record
    recorded = record is not None and not arguments.live
    headless = arguments.watch or arguments.connect is not None or recorded
    _check(arguments, headless=headless)
    if arguments.connect is not None:
        return _relayed(command, arguments)
    nodes = listen(arguments, headless=headless)
    if not headless:
        return _on_screen(command, arguments, nodes)
    script = HeadlessScript(command, nodes=nodes)
    with script.session(arguments) as session:
        if record is not None:
            session.record(record, force=arguments.force, every_step=arguments.every_step)
        script.follow(session)
        if not arguments.quiet:
            complain(script.summary(session, record))
    return script.end()


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


def _check(arguments: argparse.Namespace, *, headless: bool) -> None:
    if arguments.record == Path("-"):
        raise UsageError("--record - is not valid: standard output is the script's own")
    for option in ("live", "every_step"):
        if getattr(arguments, option) and arguments.record is None:
            raise UsageError(f"--{option.replace('_', '-')} goes with --record FILE.csv")
    if arguments.quiet and not headless:
        raise UsageError("--quiet goes with --record FILE.csv or --watch")
    if arguments.listen is not None and arguments.connect is not None:
        raise UsageError("--listen and --connect do not go together: one gpudash listens")
    if not (headless or on_terminal()):
        raise UsageError(
            "the dashboard needs a terminal; --record FILE.csv or --watch runs without one"
        )


def listen(arguments: argparse.Namespace, *, headless: bool) -> Nodes | None:
    """Listen for other nodes, if that is asked for, and show a token that was just drawn."""
    if arguments.listen is None:
        if arguments.token_file is not None:
            raise UsageError("--token-file goes with --listen or --connect")
        return None
    address = to_listen(arguments.listen)
    given = given_token(arguments.token_file)
    token = given or new_token()
    nodes = Nodes(address, token)
    if given is None:
        complain(f"gpudash listens on {nodes.address}; for the other nodes: {VARIABLE}={token}")
        if not headless:  # the screen would hide it
            with suppress(EOFError):
                input("Enter opens the dashboard ")
    elif headless and not arguments.quiet:
        complain(f"gpudash listens on {nodes.address}")
    return nodes


def _relayed(command: UserCommand, arguments: argparse.Namespace) -> int:
    """Run it for the gpudash of another node. Returns its exit code."""
    address = to_connect(arguments.connect)
    token = given_token(arguments.token_file)
    if token is None:
        raise UsageError(
            f"--connect needs the token of the gpudash that listens; valid: {VARIABLE} in the "
            "environment, or --token-file FILE"
        )
    relay = Relay(address, token, complain)
    relay.try_once()
    script = HeadlessScript(command)
    script.run_for(relay)
    return script.end()


def _on_screen(command: UserCommand, arguments: argparse.Namespace, nodes: Nodes | None) -> int:
    plan, place = plan_of(command), begin()
    sources: list[ScriptSource] = []

    def start(_plan: Plan) -> Source:
        held = keep(command, place)
        sources.append(ScriptSource(command.name, held, place, nodes=nodes))
        return sources[-1]

    with ExitStack() as at_end:
        at_end.callback(lambda: None if sources else remove(place))

        @cache
        def open_session() -> Session:
            session = Session(
                plan,
                interval_s=arguments.interval,
                rate_hz=arguments.rate,
                command=arguments.command,
                set_by=arguments.set_by,
                start_source=start,
            )
            at_end.callback(session.close)
            return session

        if arguments.record is not None:
            open_session().record(
                arguments.record, force=arguments.force, every_step=arguments.every_step
            )
        code = show(open_session, plan, arguments)
    return say_farewell(sources[-1], code) if sources else code


def say_farewell(source: ScriptSource, code: int) -> int:
    """Say that the command runs on; or what it said last, and return its exit code."""
    if not source.is_over:
        complain(f"{source.name} runs on, unwatched; gpudash attach opens the dashboard again")
        return code
    if source.last_lines:
        say("\n".join(source.last_lines[-LAST_LINES:]))
    return code if source.exit_code is None else in_shell(source.exit_code)


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
