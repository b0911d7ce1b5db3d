"""Run an experiment on a training, whichever it is: a workload, or the user's command.

A command has the terminal, the streams and the signals until it is measured: it ends with that, and
so does all it has started.
"""

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import closing
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple, Self

from gpudash import format as fmt
from gpudash.cli.headless import News, StartedTraining, session_of
from gpudash.cli.plan import check_with_command, make_plan
from gpudash.cli.stdout import complain
from gpudash.cli.user_training import UserTraining, plan_of
from gpudash.errors import Exit, UsageError
from gpudash.offers import check_for_script
from gpudash.protocol.commands import Plan
from gpudash.protocol.training import TRAINING_ENDED, Failed, Lever
from gpudash.reference_levers import reference_levers
from gpudash.run.guarded import Guarded
from gpudash.run.session import Session
from gpudash.run.user_command import UserCommand, understand
from gpudash.snapshot import ENDED, Snapshot, silence
from workloads.levers import LeverError, find

PATIENCE_S = 60.0
"""Seconds to wait for a step."""


class Course(ABC):
    """What a verb does with a training, one thing after the other, until enough is known."""

    patience_s = inf
    """How long a step may take."""

    session: Session
    news: News
    doing = "warming up"
    failure = ""
    """Why something was not found, as a clause."""
    is_done = False

    def begin(self, session: Session, news: News) -> Self:
        self.session, self.news, self._stages = session, news, self.stages()
        return self

    def await_levers(self) -> Iterator[bool]:
        """Wait until it is known which the training has."""
        # another rank may start before the one that offers them
        while self.news.snapshot.process is None or not self.news.snapshot.levers_complete:
            yield False

    @abstractmethod
    def stages(self) -> Iterator[bool]:
        """Yield False to wait. Raise UsageError or LeverError for what the training has not."""

    def is_over(self) -> bool:
        """Do what comes next; return whether the training may end."""
        if (self.news.snapshot.quiet_s or 0.0) > self.patience_s:
            no_step = f"no step has ended for {self.patience_s:.0f} s"
            self.failure = f"{no_step}; gpudash doctor may tell why"
        self.is_done = self.failure != "" or next(self._stages, True)
        return self.is_done

    def line(self, snapshot: Snapshot) -> str:
        if snapshot.state in ENDED:
            return ""
        return ", ".join([f"{snapshot.workload}: {self.now(snapshot)}", *silence(snapshot)])

    def now(self, snapshot: Snapshot) -> str:
        """Return what it does at this moment."""
        return self.doing if snapshot.state == "training" else snapshot.status_line

    def profile(self, steps: int, path: Path) -> Iterator[bool]:
        self.doing = f"profiling {fmt.steps(steps)}"
        asked = self.session.profile(steps, path)
        while self.news.snapshot.last_command < asked or self.news.snapshot.profiling:
            yield False
        self.failure = self.news.snapshot.profile_refusal


class Ended(NamedTuple):
    """How a measured training ended."""

    snapshot: Snapshot = Snapshot()
    """The newest of the training."""
    interrupted: bool = False
    why: str = TRAINING_ENDED
    """Why there was no more, as a clause."""
    failed: int | None = None
    """The exit code of one that failed by itself."""
    failure: Failed | None = None
    """The session's."""
    is_ours: bool = True
    """Whether it is a workload, whose failure needs no more words."""

    def without(
        self, what: str, known: str | None = "", code: int = Exit.FAILED, *, start: str = ""
    ) -> int:
        """Say why there is no `what`, which may be `known` with its exit code; return the code."""
        if self.failed is not None and self.is_ours:
            complain(f"gpudash: {self.why}{start and f'; that was {start}'}")
            return self.failed
        why = known if known and self.failed is None else self.why
        where = start and f" in {start}"
        complain(f"gpudash: no {what}{where}: {'interrupted' if self.interrupted else why}")
        if self.interrupted:
            return Exit.INTERRUPTED
        return code if self.failed is None else self.failed


class AskedTraining(NamedTuple):
    """What a command line asks to measure; nothing of it has begun."""

    plan: Plan
    command: UserCommand | None = None

    @property
    def levers(self) -> tuple[Lever, ...] | None:
        """None: a command has to train before its levers are known."""
        if self.command is not None:
            return None
        return reference_levers(self.plan.workload, self.plan.settings)


def training_of(
    arguments: argparse.Namespace, moved: Collection[str] = (), doing: str = ""
) -> AskedTraining:
    """Raise UsageError or LeverError, also for a lever to be `moved` that cannot be there."""
    if arguments.user_command:
        check_with_command(arguments)
        for name in moved:
            check_for_script(name)
        command = understand(arguments.user_command)
        return AskedTraining(plan_of(command), command)
    training = AskedTraining(make_plan(arguments, moved))
    for name in moved:
        if find(training.levers or (), name).name in training.plan.settings:
            raise UsageError(f"lever {name} is both set and {doing}; valid: one of the two")
    return training


def measure(training: AskedTraining, arguments: argparse.Namespace, course: Course) -> Ended:
    """Start the training; have it end once the course is over. Raises what the course raises."""
    measured = _started(training, arguments)
    refusals = list[Exception]()

    def is_over() -> bool:
        try:
            return course.is_over()
        except (UsageError, LeverError) as error:
            refusals.append(error)
            return True

    opened = session_of(training.plan, arguments, **measured.source)
    with closing(measured), closing(opened) as session:
        course.begin(session, measured.news)
        measured.follow(session, course.line, is_over)
        why, failed = measured.outcome(session.failure)
    snapshot, interrupted = measured.news.snapshot, measured.interrupted
    ended = Ended(snapshot, interrupted, why, failed, session.failure, measured.is_ours)
    if refusals:
        raise refusals[0]
    return ended


def _started(training: AskedTraining, arguments: argparse.Namespace) -> StartedTraining:
    if training.command is None:
        return StartedTraining(quiet=arguments.quiet)
    hold = partial(Guarded, stdout=sys.stderr.fileno() if arguments.json else None)
    settings = training.plan.settings
    return UserTraining(training.command, hold, quiet=arguments.quiet, begins_with=settings)
