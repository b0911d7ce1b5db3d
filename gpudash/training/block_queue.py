"""Tracks which block of a run is in progress, and when it is over. It uses no I/O and no clock."""

import math
from collections import deque

from ..protocol.commands import Block, Blocks
from ..protocol.records import Settings
from ..protocol.training import BlocksEnded


class BlockQueue:
    """The waiting blocks, the one in progress, and the settings before the first."""

    def __init__(self) -> None:
        self._waiting: deque[Block] = deque()
        self._newest = -1  # number of the newest block begun
        self._newest_run = -1
        self._answers: tuple[int, ...] = ()  # ids of the run's commands
        self.run: int | None = None
        """The run in progress; None: no run."""
        self.current: Block | None = None
        self.baseline: Settings = {}
        """The settings to go back to after the run."""
        self._from_step = 0  # the block in progress is measured after this step …
        self._from_s = math.inf  # … and from the moment that step was seen
        self._burst_steps = 1

    @property
    def running(self) -> bool:
        return self.run is not None

    def begins(self, command: Blocks) -> bool:
        return len(command.blocks) > 0 and command.run > self._newest_run

    def take_in(self, command: Blocks, settings: Settings) -> bool:
        """Return False, and change nothing, if the run has ended or must not begin.

        A command without blocks also ends the block in progress.
        """
        if not self.running and self.begins(command):
            self.run = self._newest_run = command.run
            self.baseline = dict(settings)
            self._answers, self._newest = (), -1
        if self.run != command.run:
            return False
        self._answers += (command.id,)
        self._waiting = deque(block for block in command.blocks if block.number > self._newest)
        if not command.blocks:
            self.current = None
        return True

    def take(self) -> Block | None:
        self.current = self._waiting.popleft() if self._waiting else None
        if self.current is not None:
            self._newest = self.current.number
        return self.current

    def entered(self, step: int, warmup_steps: int, burst_steps: int = 1) -> None:
        """Measure only whole bursts, two or more, if batches arrive `burst_steps` at a time.

        A new loader's bursts always begin in the same way, so a partial one would be wrong by the
        same amount each time.
        """
        self._from_step = step + warmup_steps
        self._from_s = math.inf
        self._burst_steps = burst_steps

    def is_over(self, step: int, now_s: float) -> bool:
        """Return True without a block. `step` is the last one if the block is over now.

        One step more than requested is run. The last one is not measured, because on two streams
        no batch is prepared during it.
        """
        if self.current is None:
            return True
        if step < self._from_step:
            return False
        self._from_s = min(self._from_s, now_s)
        measured = step - self._from_step - 1
        return (
            measured >= self._least(self.current)
            and measured % self._burst_steps == 0
            and now_s - self._from_s >= self.current.min_s
        )

    def pace_s(self, step: int, now_s: float) -> float | None:
        """Return the seconds a step takes; None during warm-up."""
        steps, seconds = step - self._from_step, now_s - self._from_s
        return seconds / steps if steps > 0 and seconds > 0 else None

    def steps_left(self, step: int, now_s: float, step_s: float) -> int:
        if self.current is None:
            return 1
        warm_step = max(step, self._from_step)
        left_s = self.current.min_s - max(0.0, now_s - self._from_s)
        measured = max(
            self._least(self.current), warm_step - self._from_step - 1 + math.ceil(left_s / step_s)
        )
        whole = math.ceil(measured / self._burst_steps) * self._burst_steps
        return max(1, self._from_step + 1 + whole - step)

    def _least(self, block: Block) -> int:
        burst = self._burst_steps
        return max(block.min_steps, 2 * burst if burst > 1 else 1)

    def end(self, at_s: float, why: str) -> BlocksEnded:
        assert self.run is not None
        ended = BlocksEnded(at_s=at_s, answers=self._answers, run=self.run, why=why)
        self.run = self.current = None
        self._waiting.clear()
        return ended


def difference(before: Settings, after: Settings) -> Settings:
    """Return the changes that lead from one to the other."""
    return {name: value for name, value in after.items() if before.get(name) != value}
