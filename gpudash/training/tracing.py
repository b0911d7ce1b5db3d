"""Profiles some steps, which count in no rate. If flops are not known, a step counts them first."""

import time
from contextlib import ExitStack
from pathlib import Path
from threading import get_native_id
from typing import ClassVar

from ..instrument.memory_history import TRACED, MemoryHistory
from ..instrument.profiler import NoProfile, Profiler
from ..instrument.reporter import Reports
from ..instrument.state_sender import StateSender
from ..protocol.commands import Profile
from ..protocol.inspections import Profiled
from ..protocol.records import replace
from .commanded import CommandedTraining, Replies


class Tracing:
    """A profile in progress."""

    _newest: ClassVar["Tracing | None"] = None

    def __init__(self, training: CommandedTraining, command: Profile, reports: Reports) -> None:
        """Begin at a border. Raises NoProfile."""
        self.command = command
        self._untraced_step_ms = reports.step_ms
        self._untraced_phases_ms = {} if reports.step_ms is None else reports.phases_ms
        self._training = training
        self._step = training.step  # the newest border's
        self._thread = get_native_id()  # a forked child has another one
        self._counting = ExitStack()
        roots, _ = training.owned()
        self._profiler = Profiler(training.device, command.steps, Path(command.path), roots)
        training.look_closely(command.steps + 1)
        Tracing._newest = self
        if training.flops is None:
            from ..instrument.flops import counting  # noqa: PLC0415  # slow

            self._profiler.check()  # before a step is counted in vain
            self._counter = self._counting.enter_context(
                counting(training.device, compiled=training.is_compiled)
            )
            training.at_marks(self._counter.mark, self._counter.rename)
            self._counting.callback(training.at_marks, None)
            self._is_counting = True
        else:
            self._is_counting = False
            self._profiler.begin(training.step + 1)

    @property
    def is_overdue(self) -> bool:
        return self._profiler.is_overdue

    def border(self, *, is_last: bool) -> bool:
        """Return whether the profile is over after this step. Raises NoProfile."""
        if self._training.step == self._step:
            return False
        self._step = self._training.step
        if not self._is_counting:
            return self._profiler.step(is_last=is_last)
        self._stop_counting()
        self._training.flops = self._counter.flops()
        self._profiler.begin(self._training.step + 1)
        return False

    def end(self) -> Profiled:
        """Stop, and return the profile. Raises NoProfile."""
        self._stop_counting()
        training = self._training
        _, optimizers = training.owned()
        profiled = self._profiler.end(
            training.precision,
            training.flops,
            self._untraced_step_ms,
            self._untraced_phases_ms,
            optimizers,
        )
        return replace(profiled, answers=(self.command.id,))

    def abandon(self) -> None:
        """Do nothing on another thread than the one that trains."""
        if get_native_id() == self._thread:
            self._stop_counting()
            self._profiler.abandon()

    @classmethod
    def abandon_newest(cls) -> None:
        """Switch off the newest profile, if it runs on this thread."""
        if cls._newest is not None:
            cls._newest.abandon()

    def _stop_counting(self) -> None:
        self._is_counting = False
        self._counting.close()


class Profiling:
    """The profile in progress, if there is one, and what is measured around it."""

    def __init__(
        self,
        training: CommandedTraining,
        life: StateSender,
        reports: Reports,
        history: MemoryHistory,
        replies: Replies,
    ) -> None:
        self._training = training
        self._life = life
        self._reports = reports
        self._history = history
        self._replies = replies
        self.tracing: Tracing | None = None
        """The profile in progress."""

    def begin(self, command: Profile) -> bool:
        """Return False if a step has to come first. The next command ends the profile."""
        if not self._training.is_filled:
            return False
        self._history.stop(TRACED)
        self._training.synchronize()
        self._reports.send()
        began_s = time.monotonic()
        try:
            self.tracing = Tracing(self._training, command, self._reports)
        except NoProfile as why_not:
            self._replies.refuse(str(why_not), command)
            return True
        self._training.interrupt()
        self._life.pause(began_s, self._training.step, "profile")
        return True

    def turn(self, *, is_last: bool) -> bool:
        """Return whether no profile is in progress afterwards."""
        if self.tracing is None:
            return True
        try:
            if not self.tracing.border(is_last=is_last):
                return False
        except NoProfile as why_not:
            self.drop(str(why_not))
        else:
            self.end()
        return True

    def end_overdue(self) -> None:
        if self.tracing is not None and self.tracing.is_overdue:
            self.end()

    def end(self) -> None:
        if self.tracing is None:
            return
        try:
            self._replies.send(self.tracing.end())
        except NoProfile as why_not:
            self._replies.refuse(str(why_not), self.tracing.command)
        self._measure_again()

    def drop(self, why: str) -> None:
        if self.tracing is not None:
            self.tracing.abandon()
            self._replies.refuse(why, self.tracing.command)
            self._measure_again()

    def abandon(self) -> None:
        if self.tracing is not None:
            self.tracing.abandon()
            self._measure_again()

    def dismiss(self, why: str) -> None:
        """Refuse the profile in progress; nothing is measured afterwards."""
        if self.tracing is not None:
            command = self.tracing.command
            self.tracing.abandon()
            self.tracing = None
            self._replies.refuse(f"{why} before {command.steps} steps were traced", command)
            self._life.resume(time.monotonic())

    def _measure_again(self) -> None:
        self.tracing = None
        self._reports.set_aside()
        self._training.profiled()
        self._training.interrupt()
        self._life.resume(time.monotonic(), **self._training.anew())
