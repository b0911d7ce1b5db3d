"""Start the user's command, and have it watched; without a screen it runs as if alone."""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from gpudash.cli.headless import SIGNALS, StartedTraining, handled, last_clauses
from gpudash.format import figure, steps
from gpudash.protocol.commands import Plan
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Failed
from gpudash.recording.files import shown
from gpudash.recording.provenance import plain
from gpudash.rendezvous import Rendezvous
from gpudash.run import runs
from gpudash.run.command_process import CommandProcess, Foreground, keep
from gpudash.run.guardian import HAS_BEEN_ASKED
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


def heeding(obey: Callable[[int, object], None]) -> AbstractContextManager[None]:
    """Have this obey the signals that commands heed, too: ignored ones, as under nohup, none."""
    ours = {*SIGNALS, *PASSED_ON}
    heeded = [number for number in ours if signal.getsignal(number) != signal.SIG_IGN]
    return handled(heeded, obey)


class UserTraining(StartedTraining):
    """A user's command; without a screen, with terminal, streams and signals as if it ran alone."""

    is_ours = False

    def __init__(
        self,
        command: UserCommand,
        hold: Callable[[UserCommand, Rendezvous], CommandProcess] = Foreground,
        *,
        nodes: Nodes | None = None,
        gives_way: bool = False,
        quiet: bool = True,
        begins_with: Settings | None = None,
    ) -> None:
        """With `gives_way`, `gpudash attach` may watch the command meanwhile. Raises UsageError."""
        super().__init__(quiet=quiet)
        self.plan = plan_of(command)
        self.source = {"start_source": self._start}
        self._command, self._hold = command, hold
        self._place = runs.begin()
        if begins_with:
            self._place.begin_with(begins_with)
        self._watch = partial(TrainingJob, command.name, nodes=nodes, gives_way=gives_way)
        is_claimed = not gives_way and hold is not keep  # a keeper admits one gpudash anyway
        self._claim = Claim(self._place.path) if is_claimed else None
        self._held: CommandProcess | None = None
        self._early_signals: list[int] = []  # to be passed on, but the command is not there yet
        self.job: TrainingJob | None = None
        """The source of the command; None before its start."""

    def _start(self, _plan: Plan) -> TrainingJob:
        self.job = self._watch(self._launch(), self._place)
        return self.job

    def _launch(self) -> CommandProcess:
        held = self._held = self._hold(self._command, self._place)
        for number in self._early_signals:  # later ones go to it directly
            held.signal(number)
        return held

    def close(self) -> None:
        if self._claim is not None:
            self._claim.close()
        if self._held is None:  # the directory of a run that was not started
            shutil.rmtree(self._place.path, ignore_errors=True)

    def run_for(self, relay: Relay) -> None:
        """Run the command to its end, watched from another node. Raises WorkerError."""
        with self.taking_signals():
            self._launch()
            with relay.running(self._place):
                code = in_shell(self.wait())
                how = f"exited with {code}" if code else "has ended"
                relay.set_parting(f"{self._command.name} {how}")

    def ask_to_end(self, session: Session) -> None:
        assert self._held is not None
        if self.interrupted:  # it has its signals
            self._held.signal(HAS_BEEN_ASKED)
            return
        session.stop()

    def wait(self) -> int:
        assert isinstance(self._held, Foreground)
        code = self._held.wait()
        self._held.close()
        return code

    def outcome(self, failure: Failed | None) -> tuple[str, int | None]:  # noqa: ARG002  # its own it tells
        assert self.job
        code = self.job.held.exit_code
        if code and not (self.job.was_stopped or self.interrupted):
            return self.job.how_it_ended(), in_shell(code)
        return self.job.why_no_more(), None

    def summary(self, session: Session, record: Path | None) -> list[str]:
        assert self.job
        parts = [self.job.how_it_ended()] if self.wait() else []
        lines = []
        trainings = self.job.trainings
        if len(trainings) > 1:
            for number, one in enumerate(trainings, 1):
                lines.append(f"training {number}: {_pace(one.steps, one.seconds)}")
            whole = _pace(
                sum(one.steps for one in trainings), sum(one.seconds for one in trainings)
            )
            parts.append(f"{len(trainings)} trainings, {whole}")
        elif self.job.started:
            rate = figure(session.steps_per_s)
            seen = f"{steps(self.job.total_steps)}, {rate} steps/s"
            parts.append(f"{seen}{' until gpudash attach took over' * self.job.is_behind}")
        else:
            parts.append(self.job.why_no_step())
        if record is not None and session.has_rows("recording"):
            parts.append(f"recorded to {shown(record)}")
        parts += own_failures(session)
        parts += last_clauses(session, self.news.snapshot)
        return [*lines, "; ".join(parts)]

    def end(self) -> int:
        """After Ctrl-C, end by SIGINT, so that a shell loop ends."""
        code = self.wait()
        if code == -signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return in_shell(code)

    def taking_signals(self) -> AbstractContextManager[None]:
        return heeding(self.take)

    def take(self, number: int, _frame: object) -> None:
        """Leave signals to the command: pass on those that the terminal does not send it anyway."""
        if number not in ASKING:
            self._signals.append(number)
        if number == signal.SIGINT and self.job is not None:
            self.job.was_interrupted = True
        if self._held is None:  # nor has the terminal's reached it
            self._early_signals.append(number)
        elif number in PASSED_ON:
            self._held.signal(number)
