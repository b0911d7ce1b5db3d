"""Times a block by the wall clock, from idle device to idle device, with or without instruments."""

import time
from collections.abc import Callable
from typing import NamedTuple

from ..instrument.reporter import Reports
from ..protocol.commands import Block
from ..protocol.training import Timed
from .commanded import CommandedTraining


class _Timing(NamedTuple):
    block: Block
    began_s: float
    after_step: int


class WallClock:
    """Times one block at a time."""

    def __init__(
        self, training: CommandedTraining, reports: Reports, send: Callable[[Timed], object]
    ) -> None:
        self._training = training
        self._reports = reports
        self._send = send
        self._timing: _Timing | None = None

    def start(self, block: Block) -> None:
        """Settle and report everything before, and start the time of the block."""
        self._training.settle()
        self._reports.send()
        if block.wall_clock == "uninstrumented":
            self._training.unwatch()
        self._timing = _Timing(block, time.monotonic(), self._training.step)

    def read(self, lasted: Block | None) -> None:
        timing = self._timing
        if timing is None or lasted is not timing.block:
            return
        self._training.settle()
        now_s, number = time.monotonic(), timing.block.number
        steps, seconds = self._training.step - timing.after_step, now_s - timing.began_s
        samples = self._training.samples_of(steps)
        self._send(Timed(at_s=now_s, block=number, steps=steps, samples=samples, seconds=seconds))

    def stop(self) -> None:
        """Turn the instruments on again. Call it before other settings apply."""
        timing, self._timing = self._timing, None
        if timing is not None and timing.block.wall_clock == "uninstrumented":
            steps = self._training.step - timing.after_step
            samples = self._training.samples_of(steps)
            self._reports.pass_over(self._training.step, steps, samples)
            self._training.watch()

    def abandon(self) -> None:
        self._timing = None
