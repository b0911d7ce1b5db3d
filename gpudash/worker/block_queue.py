"""Which block of a comparison is being run, and when it is over. No I/O, no clock."""

from collections import deque
from collections.abc import Sequence
from math import inf

from gpudash.protocol import Block, Settings


class BlockQueue:
    """The blocks that wait, the one in progress, and the settings from before the first."""

    def __init__(self) -> None:
        self._waiting: deque[Block] = deque()
        self._newest = -1  # number of the newest block begun
        self.current: Block | None = None
        self.baseline: Settings | None = None
        """The settings to go back to; None while no blocks are run."""
        self._from_step = 0  # the block in progress is measured after this step …
        self._from_s = inf  # … and from the moment that step was seen
        self._burst_steps = 1

    @property
    def running(self) -> bool:
        """Whether blocks are being run."""
        return self.baseline is not None

    def replace(self, blocks: Sequence[Block], settings: Settings) -> None:
        """Take the blocks still to be run; `settings` are those in force.

        None at all end the block in progress too; else it is run to its end.
        """
        self._waiting = deque(block for block in blocks if block.number > self._newest)
        if self.baseline is None and self._waiting:
            self.baseline = dict(settings)
        elif not blocks:
            self.current = None

    def take(self) -> Block | None:
        """Begin the next block and return it; None if there is none."""
        self.current = self._waiting.popleft() if self._waiting else None
        if self.current is not None:
            self._newest = self.current.number
        return self.current

    def entered(self, step: int, warmup_steps: int, burst_steps: int = 1) -> None:
        """Note that the block in progress begins after `step`.

        Where batches arrive `burst_steps` at a time, whole bursts are measured, two or more:
        a new loader's always begin alike, and a part of one would be off by as much each time.
        """
        self._from_step = step + warmup_steps
        self._from_s = inf
        self._burst_steps = burst_steps

    def is_over(self, step: int, now_s: float) -> bool:
        """Tell whether the block in progress has lasted long enough; True without one.

        `step` is the last one trained if it is over now. One step more than asked for is run:
        the last one is not measured, as on two streams nothing is prepared beside it.
        """
        if self.current is None:
            return True
        if step < self._from_step:
            return False
        self._from_s = min(self._from_s, now_s)
        measured, burst = step - self._from_step - 1, self._burst_steps
        least = max(self.current.min_steps, 2 * burst if burst > 1 else 1)
        return (
            measured >= least
            and measured % burst == 0
            and now_s - self._from_s >= self.current.min_s
        )

    def end(self) -> None:
        """Forget everything: another change has been asked for, or the blocks are over."""
        self._waiting.clear()
        self.current = self.baseline = None
