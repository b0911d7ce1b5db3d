"""Compute current values: those of the last `NOW_S` seconds, of steps and of readings."""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from gpudash import format as fmt
from gpudash.metrics import METRICS
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.training import Step
from gpudash.statistics import mean, percentiles
from gpudash.window import AMOUNTS, Pace, Window

NOW_S = 2.0
"""Seconds that all current values are taken over: rates, the answer's times, readings."""
NOW_STEPS = 5
"""Least steps that they are taken over, even if those took longer."""
REPORT_S = 0.5
"""Seconds that may pass between a step's end and its report."""
ReadingT = TypeVar("ReadingT", GpuReading, HostReading)


def now(steps_per_s: float | None, steps: int = NOW_STEPS) -> str:
    """Return the stretch that current values are of, where there were so many steps."""
    slow = steps_per_s and steps_per_s * NOW_S < NOW_STEPS  # 0 at rest
    return f"last {fmt.steps(min(steps, NOW_STEPS))}" if slow else f"last {NOW_S:g} s"


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

    def add(self, *steps: Step, in_block: bool = False) -> None:
        """Drop those of another segment, but none in blocks, which are short."""
        newest = steps[-1]
        if self._steps and newest.segment != self._steps[-1].segment and not in_block:
            self._steps.clear()
        self._steps += steps
        begin_s = newest.finished_s - NOW_S
        while len(self._steps) > NOW_STEPS and self._steps[0].finished_s < begin_s:
            self._steps.popleft()

    def longest_s(self) -> float:
        return max((step.step_ms for step in self._steps), default=0.0) / 1000

    def values(self) -> dict[str, float]:
        return Window(self._steps).times.values()

    def at_rest(self) -> Rate:
        rate = self.rate(0.0)
        counted = (None if one is None else 0.0 for one in (rate.samples_per_s, rate.tokens_per_s))
        return Rate(0.0, next(counted), None, None, next(counted))

    def rate(self, idle_s: float) -> Rate:
        """Return the rate, `idle_s` seconds after the newest step (0: a step follows at once).

        A step that takes longer than any before counts as lasting until now, so that the rate of a
        stuck training falls towards 0. Pauses do not dilute it.
        """
        if not self._steps:
            return UNKNOWN
        pace = Pace(self._steps)
        if idle_s > self.longest_s() + REPORT_S:
            pace.busy_s += idle_s
        p50, p95 = percentiles((step.step_ms, step.count) for step in self._steps)
        if pace.steps < NOW_STEPS and pace.busy_s < NOW_S:  # after a change a few are no measure
            return Rate(None, None, p50, p95)
        steps_per_s, samples_per_s, tokens_per_s = map(pace.per_s, AMOUNTS)
        return Rate(steps_per_s, samples_per_s, p50, p95, tokens_per_s)


class RecentReadings(Generic[ReadingT]):
    """The readings of a GPU, or of a rank's processes, in the last seconds."""

    def __init__(self, span_s: float = NOW_S) -> None:
        self._span_s = span_s
        self._readings: deque[ReadingT] = deque()

    def add(self, reading: ReadingT) -> None:
        self._readings.append(reading)
        while reading.at_s - self._readings[0].at_s >= self._span_s:
            self._readings.popleft()

    def now(self) -> ReadingT | None:
        if not self._readings:
            return None
        newest = self._readings[-1]
        means = {
            name: mean(reading.number(name) for reading in self._readings)
            for name in newest.values
            if _is_mean(name)
        }
        known = {name: value for name, value in means.items() if value is not None}
        return replace(newest, values=newest.values | known)


def _is_mean(name: str) -> bool:
    return name not in METRICS or METRICS[name].over_time == "mean"
