"""Keep the last minute of step times, second by second."""

from collections import deque
from itertools import repeat

from gpudash.protocol import Step
from gpudash.snapshot import Values

SPAN_S = 60


class StepHistory:
    """The mean step time of each second; its size does not depend on the rate of steps."""

    def __init__(self) -> None:
        self._means: deque[float | None] = deque(maxlen=SPAN_S)  # up to and including `_second`
        self._second: int | None = None
        self._ms, self._count = 0.0, 0  # sums over the newest second

    def add(self, step: Step) -> None:
        """Add a step; steps come in order."""
        self._go_to(int(step.finished_s))
        self._ms += step.count * step.step_ms
        self._count += step.count
        self._means[-1] = self._ms / self._count

    def values(self, now_s: float) -> Values:
        """Return the mean step time of each whole second in ms; None for seconds without a step."""
        if self._second is None:
            return ()
        means = tuple(self._means)
        whole = means if self._second < int(now_s) else means[:-1]
        late = min(max(int(now_s) - 1 - self._second, 0), SPAN_S)
        return (*whole, *repeat(None, late))[-SPAN_S:]

    def _go_to(self, second: int) -> None:
        before = second - 1 if self._second is None else self._second
        if second > before:
            self._means.extend(repeat(None, min(second - before, SPAN_S)))
            self._second, self._ms, self._count = second, 0.0, 0
