"""Profiles some steps of a training. If flops are not known, one more step counts them first."""

from contextlib import ExitStack
from pathlib import Path
from threading import get_native_id
from typing import ClassVar

from msgspec.structs import replace

from gpudash.instrument.profiler import Profiler
from gpudash.protocol.commands import Profile
from gpudash.protocol.inspections import Profiled
from gpudash.training.commanded import CommandedTraining


class Tracing:
    """A profile in progress."""

    _newest: ClassVar["Tracing | None"] = None

    def __init__(
        self, training: CommandedTraining, command: Profile, untraced_step_ms: float | None
    ) -> None:
        """Begin at a border. Raises NoProfile."""
        self.command = command
        self._untraced_step_ms = untraced_step_ms
        self._training = training
        self._step = training.step  # the newest border's
        self._thread = get_native_id()  # a forked child has another one
        self._counting = ExitStack()
        roots, _ = training.owned()
        self._profiler = Profiler(training.device, command.steps, Path(command.path), roots)
        training.look_closely(command.steps + 1)
        Tracing._newest = self
        if training.flops is None:
            from gpudash.instrument.flops import counting  # noqa: PLC0415  # slow

            self._profiler.check()  # before a step is counted in vain
            self._counter = self._counting.enter_context(
                counting(training.device, compiled=training.is_compiled)
            )
            self._is_counting = True
        else:
            self._is_counting = False
            self._profiler.begin(training.step + 1)

    @property
    def is_overdue(self) -> bool:
        """Whether the profile has lasted too long, and must end even within a step."""
        return self._profiler.is_overdue

    def border(self, *, is_last: bool) -> bool:
        """Note that a step is over; return whether the profile is. Raises NoProfile."""
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
            training.precision, training.flops, self._untraced_step_ms, optimizers
        )
        return replace(profiled, answers=(self.command.id,))

    def abandon(self) -> None:
        """Switch everything off. On another thread than the one that trains, do nothing."""
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
