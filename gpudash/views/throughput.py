"""The rate of a training: of the whole run, and now, which is over the last `NOW_S`."""

from collections import deque
from collections.abc import Iterator
from operator import mul
from typing import NamedTuple

from gpudash.protocol import Event, Progress, Reading, Started, Step
from gpudash.statistics import percentiles, total

NOW_S = 2.0
"""Every value of now is over so long: rates, the answer's times, readings of GPU and host."""
NOW_STEPS = 5
"""Steps that it is over at least, even if they took longer."""
REPORT_S = 0.5
"""A step may have been finished for so long before we hear of it."""


def now(steps_per_s: float | None) -> str:
    """Return what values right now are taken over, in words."""
    slow = steps_per_s and steps_per_s * NOW_S < NOW_STEPS  # at rest none is looked for
    return f"last {NOW_STEPS} steps" if slow else f"last {NOW_S:g} s"


class Rate(NamedTuple):
    """What the training does at this moment."""

    steps_per_s: float | None
    samples_per_s: float | None
    step_ms_p50: float | None
    step_ms_p95: float | None
    tokens_per_s: float | None = None


UNKNOWN = Rate(None, None, None, None)


class RecentSteps:
    """The last steps under the active settings; of a comparison, those of both sides."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=8192)

    def add(self, step: Step, *, in_block: bool = False) -> None:
        """Take a finished step; the first one of another segment drops those before.

        Blocks of a comparison are too short for values of their own: they would only flicker.
        """
        if self._steps and step.segment != self._steps[-1].segment and not in_block:
            self.clear()
        self._steps.append(step)
        while len(self._steps) > NOW_STEPS and step.finished_s - self._steps[0].finished_s > NOW_S:
            self._steps.popleft()

    def clear(self) -> None:
        """Forget everything, as after a restart."""
        self._steps.clear()

    def __iter__(self) -> Iterator[Step]:
        """Yield these steps, oldest first."""
        return iter(self._steps)

    def last(self) -> Step | None:
        """Return the newest step."""
        return self._steps[-1] if self._steps else None

    def longest_s(self) -> float:
        """Return how long the longest of these steps took."""
        return max((step.step_ms for step in self._steps), default=0.0) / 1000

    def at_rest(self) -> Rate:
        """Return the rate while no step is finished: 0 of everything that is counted."""
        rate = self.rate(0.0)
        counted = (None if one is None else 0.0 for one in (rate.samples_per_s, rate.tokens_per_s))
        return Rate(0.0, next(counted), None, None, next(counted))

    def rate(self, idle_s: float) -> Rate:
        """Return the rate, `idle_s` seconds after the newest step (0: a step follows at once).

        Pauses do not dilute it. A step that takes longer than any of those before counts as
        lasting until now, so that the rate of a stuck training falls towards 0.
        """
        if not self._steps:
            return UNKNOWN
        times_ms, counts = zip(*((step.step_ms, step.count) for step in self._steps), strict=True)
        busy_s = sum(map(mul, times_ms, counts)) / 1000
        if idle_s > self.longest_s() + REPORT_S:
            busy_s += idle_s
        p50, p95 = percentiles(times_ms, (50, 95), counts)
        if busy_s <= 0:
            return Rate(None, None, p50, p95)
        samples = total(step.samples for step in self._steps)
        tokens = total(step.tokens for step in self._steps)
        samples_per_s = None if samples is None else samples / busy_s
        tokens_per_s = None if tokens is None else tokens / busy_s
        return Rate(sum(counts) / busy_s, samples_per_s, p50, p95, tokens_per_s)


class WholeRun:
    """The rate of a worker's steps from the end of its first one to that of the newest.

    The first one starts the loader and compiles; pauses and lever changes are in no step's time.
    """

    def __init__(self) -> None:
        self._steps = -1  # after the first one
        self._busy_s = 0.0

    def fold(self, item: Event | Reading) -> None:
        """Take one record; another worker begins anew."""
        match item:
            case Started():
                self._steps, self._busy_s = -1, 0.0
            case Progress():
                for step in item.steps:
                    self._step(step)

    @property
    def steps_per_s(self) -> float | None:
        """None before the second step."""
        return self._steps / self._busy_s if self._busy_s > 0 else None

    def _step(self, step: Step) -> None:
        counted = step.count if self._steps >= 0 else step.count - 1
        self._steps = max(self._steps, 0) + counted
        self._busy_s += counted * step.step_ms / 1e3
