"""Keep the last minute of step times, second by second."""

from gpudash.protocol import Step
from gpudash.snapshot import Values

SPAN_S = 60


class StepHistory:
    """The mean step time of each second; its size does not depend on the rate of steps."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}  # of seconds with a step, the newest last
        self._ms, self._count = 0.0, 0  # sums over the newest second

    def add(self, step: Step) -> None:
        """Add a step; steps come in order."""
        second = int(step.finished_s)
        if second not in self._means:
            self._ms, self._count = 0.0, 0
        self._ms += step.count * step.step_ms
        self._count += step.count
        self._means[second] = self._ms / self._count
        if len(self._means) > SPAN_S:
            del self._means[min(self._means)]

    def values(self, now_s: float) -> Values:
        """Return the mean step time of each whole second in ms; None for seconds without a step."""
        end = int(now_s)
        first, newest = min(self._means, default=end), max(self._means, default=end)
        begin = max(first, newest - SPAN_S + 1, end - SPAN_S)
        return tuple(map(self._means.get, range(begin, end)))
