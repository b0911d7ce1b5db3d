"""How much longer a step is that is measured in full, beside the steps that are only counted.

What measuring takes by the clock is not all: it leaves cold caches to the launches that follow. A
device that lags behind the host hides it all, and then it costs nothing.
"""

from collections import deque
from statistics import median

COMPARED = 15
"""So many looks are compared, and their median is taken: one step may be long for any reason."""
FEWEST = 5


class LookCost:
    """Compares each step measured in full with the counted steps before it."""

    def __init__(self) -> None:
        self._counted_ms: float | None = None
        self._longer_ms: deque[float] = deque(maxlen=COMPARED)

    def take(self, step_ms: float, count: int) -> None:
        """`step_ms` is the mean of `count` steps timed together."""
        if count > 1:
            self._counted_ms = step_ms
        elif self._counted_ms is not None:
            self._longer_ms.append(step_ms - self._counted_ms)
            self._counted_ms = None

    def interrupt(self) -> None:
        self._counted_ms = None

    @property
    def ms(self) -> float:
        """0 while it is not known."""
        return max(median(self._longer_ms), 0.0) if len(self._longer_ms) >= FEWEST else 0.0
