"""Run the user's command without a screen, with terminal, streams and signals as if alone."""

import argparse
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf
from pathlib import Path

from gpudash import rendezvous
from gpudash.cli.headless import SIGNALS, Follower, cost_clause, handled, meters
from gpudash.cli.stdout import complain
from gpudash.format import figure, steps
from gpudash.protocol.commands import Plan
from gpudash.ranks import hangs
from gpudash.recording.files import shown
from gpudash.recording.provenance import plain
from gpudash.run import runs
from gpudash.run.command_process import Foreground
from gpudash.run.job import TrainingJob
from gpudash.run.nodes import Nodes
from gpudash.run.relay import Relay
from gpudash.run.session import Session
from gpudash.run.turns import Claim
from gpudash.run.user_command import UserCommand

ASKING = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals by which a scheduler asks for a checkpoint: they interrupt nothing."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, *ASKING)
"""Signals that whoever started gpudash sends to it alone; a terminal's reach the command anyway."""


def plan_of(command: UserCommand) -> Plan:
    return Plan(workload=command.name, settings={}, command=tuple(map(plain, command.argv)))


def remove(place: rendezvous.Rendezvous) -> None:
    """Remove the directory of a run that was not started."""
    shutil.rmtree(place.path, ignore_errors=True)


def _pace(count: int, seconds: float) -> str:
    return f"{steps(count)}, {figure(count / seconds if seconds > 0 else None)} steps/s"


def in_shell(code: int) -> int:
    """Return an exit code as a shell reports it."""
    return 128 - code if code < 0 else code


def own_failures(session: Session) -> list[str]:
    """Leave out the script's own failure, which its exit code tells."""
    found = [str(error) for error in session.sink_failures.values()]
    if session.failure is not None and session.failure.traceback:
        found.append(session.failure.sentence)
    return found


class HeadlessScript(Follower):
    """A command that has the terminal, the streams and the signals as if it ran alone."""

    most_signals = inf

    def __init__(
        self,
        command: UserCommand,
        *,
        nodes: Nodes | None = None,
        gives_way: bool = False,
        quiet: bool = True,
    ) -> None:
        """With `gives_way`, `gpudash attach` may watch the command meanwhile. Raises UsageError."""
        super().__init__(quiet=quiet, shared=True)
        self._command, self._place, self._nodes = command, runs.begin(), nodes
        self._gives_way = gives_way
        self._claim = None if gives_way else Claim(self._place.path)
        self._child: Foreground | None = None
        self._early_signals: list[int] = []  # to be passed on, but the command is not there yet
        self.source: TrainingJob | None = None
        """The source of the command; None before its start."""
        self._reported_hang: tuple[str, ...] = ()

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
            beside=meters(arguments),
        )
        try:
            yield session
        finally:
            session.close()
            if self._claim is not None:
                self._claim.close()
            if self._child is None:
                remove(self._place)

    def _start(self, _plan: Plan) -> TrainingJob:
        child = self._launch()
        self.source = TrainingJob(
            self._command.name,
            child,
            self._place,
            nodes=self._nodes,
            gives_way=self._gives_way,
        )
        return self.source

    def _launch(self) -> Foreground:
        child = self._begin()
        self._child = child  # from here on signals go to it directly
        for number in self._early_signals:
            child.signal(number)
        return child

    def _begin(self) -> Foreground:
        return Foreground(self._command, self._place)

    def run_for(self, relay: Relay) -> None:
        """Run the command to its end, watched from another node. Raises WorkerError."""
        with self._taking_signals():
            self._launch()
            with relay.running(self._place):
                code = in_shell(self._wait())
                how = f"exited with {code}" if code else "has ended"
                relay.set_parting(f"{self._command.name} {how}")

    def _look(self) -> None:
        hang = self.news.snapshot.hang
        clauses = hangs.clauses(hang) if hang is not None else ()
        if hang is not None and hang.stacks and clauses != self._reported_hang:
            complain(f"gpudash: {hangs.title(hang)}: {', '.join(clauses)}")
        self._reported_hang = clauses

    def _end(self, session: Session) -> None:
        """Leave that to the command, which has its signals."""

    def _wait(self) -> int:
        assert self._child
        code = self._child.wait()
        self._child.close()
        return code

    def summary(
        self, session: Session, record: Path | None, price: float | None = None
    ) -> list[str]:
        assert self.source
        parts = [self.source.how_it_ended()] if self._wait() else []
        lines: list[str] = []
        trainings = self.source.trainings
        if len(trainings) > 1:
            for number, one in enumerate(trainings, 1):
                lines.append(f"gpudash: training {number}: {_pace(one.steps, one.seconds)}")
            whole = _pace(
                sum(one.steps for one in trainings), sum(one.seconds for one in trainings)
            )
            parts.append(f"{len(trainings)} trainings, {whole}")
        elif self.source.started:
            rate = figure(session.steps_per_s)
            seen = f"{steps(self.source.total_steps)}, {rate} steps/s"
            parts.append(f"{seen}{' until gpudash attach took over' * self.source.is_behind}")
        else:
            parts.append(self.source.why_no_step())
        if record is not None and session.has_rows("recording"):
            parts.append(f"recorded to {shown(record)}")
        parts += own_failures(session)
        parts += [session.limits.main(), cost_clause(session, self.news.snapshot, price)]
        lines.append(f"gpudash: {'; '.join(filter(None, parts))}")
        return lines

    def end(self) -> int:
        """After Ctrl-C, end by SIGINT, so that a shell loop ends."""
        code = self._wait()
        if code == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return in_shell(code)

    def _taking_signals(self) -> AbstractContextManager[None]:
        """Leave signals to the command: pass on those that the terminal does not send it anyway."""

        def pass_on(number: int, _frame: object) -> None:
            if number not in ASKING:
                self._signals.append(number)
            if number == signal.SIGINT and self.source is not None:
                self.source.was_interrupted = True
            if self._child is None:  # nor has the terminal's reached it
                self._early_signals.append(number)
            elif number in PASSED_ON:
                self._child.signal(number)

        # ignored signals, as under nohup, the command ignores too
        ours = {*SIGNALS, *PASSED_ON}
        handled_here = [number for number in ours if signal.getsignal(number) != signal.SIG_IGN]
        return handled(handled_here, pass_on)
