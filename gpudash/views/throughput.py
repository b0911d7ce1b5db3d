"""Compute the rate of a training: over the whole run, and over the last `NOW_S` seconds."""

from collections import deque
from collections.abc import Iterator
from itertools import starmap
from operator import mul
from typing import NamedTuple

from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Progress, State, Step
from gpudash.statistics import percentiles, total

NOW_S = 2.0
"""Seconds that all current values are taken over: rates, the answer's times, readings."""
NOW_STEPS = 5
"""Least steps that they are taken over, even if those took longer."""
REPORT_S = 0.5
"""Seconds that may pass between a step's end and its report."""


def now(steps_per_s: float | None) -> str:
    """Return what current values are taken over, in words."""
    slow = steps_per_s and steps_per_s * NOW_S < NOW_STEPS  # 0 at rest
    return f"last {NOW_STEPS} steps" if slow else f"last {NOW_S:g} s"


class Rate(NamedTuple):
    """Current rates and step times."""

    steps_per_s: float | None
    samples_per_s: float | None
    step_ms_p50: float | None
    step_ms_p95: float | None
    tokens_per_s: float | None = None


UNKNOWN = Rate(None, None, None, None)


class RecentSteps:
    """The last steps under the active settings; in a comparison, those of both sides."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=8192)

    def add(self, step: Step, *, in_block: bool = False) -> None:
        """Add a finished step; the first one of another segment drops those before.

        Blocks of a comparison drop nothing: they are too short, and values would flicker.
        """
        if self._steps and step.segment != self._steps[-1].segment and not in_block:
            self._steps.clear()
        self._steps.append(step)
        while len(self._steps) > NOW_STEPS and step.finished_s - self._steps[0].finished_s > NOW_S:
            self._steps.popleft()

    def __iter__(self) -> Iterator[Step]:
        """Yield these steps, oldest first."""
        return iter(self._steps)

    def longest_s(self) -> float:
        """Return how long the longest of these steps took."""
        return max((step.step_ms for step in self._steps), default=0.0) / 1000

    def at_rest(self) -> Rate:
        """Return the rate while no step finishes: 0 for everything that is counted."""
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
        counted = [(step.step_ms, step.count) for step in self._steps]
        busy_s = sum(starmap(mul, counted)) / 1000
        if idle_s > self.longest_s() + REPORT_S:
            busy_s += idle_s
        p50, p95 = percentiles(counted)
        if busy_s <= 0:
            return Rate(None, None, p50, p95)
        samples = total(step.samples for step in self._steps)
        tokens = total(step.tokens for step in self._steps)
        samples_per_s = None if samples is None else samples / busy_s
        tokens_per_s = None if tokens is None else tokens / busy_s
        steps = sum(count for _, count in counted)
        return Rate(steps / busy_s, samples_per_s, p50, p95, tokens_per_s)


class WholeRun:
    """The rate of a worker's steps, without the first one.

    The first step starts the loader and compiles. Pauses and lever changes are in no step's time.
    """

    def __init__(self) -> None:
        self._state: State | None = None
        self._begin()

    def _begin(self) -> None:
        self._steps = -1  # after the first one
        self._busy_s = 0.0

    def fold(self, item: Event | Reading) -> None:
        """Fold one record; another worker begins anew."""
        match item:
            case State():
                before, self._state = self._state, item
                if item.starts_after(before):
                    self._begin()
            case Progress():
                for step in item.steps:
                    self._step(step)

    @property
    def steps_per_s(self) -> float | None:
        """Steps a second; None before the second step."""
        return self._steps / self._busy_s if self._busy_s > 0 else None

    def _step(self, step: Step) -> None:
        counted = step.count if self._steps >= 0 else step.count - 1
        self._steps = max(self._steps, 0) + counted
        self._busy_s += counted * step.step_ms / 1e3
