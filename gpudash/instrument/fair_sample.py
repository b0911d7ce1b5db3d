"""Chooses the steps that are measured in full, so that no kind of step is likelier than another.

Taken by the clock alone, steps that follow a long one are measured, and the long one never: with
four loader workers each fourth step may wait for four batches. So it goes by a step's number, of
which all ranks have the same. Multiples of the golden ratio are spread as evenly as can be, and are
in step with no period. Where more is measured, what would be measured with less is among it.
"""

from collections import deque
from math import inf

GOLDEN = (5**0.5 - 1) / 2
REMEMBERED = 16
"""The steps' mean time is that since so many steps were taken."""
MOST = 1000
"""One of so many steps is taken at least."""


class FairSample:
    """Takes a step each `every_s` seconds on average, and the first one."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self._step = 1  # the one in progress
        self._is_due = False  # those before it were only counted, until one was due
        self._taken = deque[tuple[int, float]](maxlen=REMEMBERED)

    def ended(self, step: int, count: int = 1) -> None:
        """Note that so many steps have ended; several are followed by one that is taken."""
        self._step, self._is_due = step + 1, count > 1

    def take(self, now_s: float) -> bool:
        """Return whether the step in progress is taken, which begins now."""
        takes = self._is_due or self.takes(now_s)
        if takes:
            self._taken.append((self._step, now_s))
        return takes

    def takes(self, now_s: float, ahead: int = 0) -> bool:
        """Return whether a step is taken, so many after the one in progress."""
        place = (self._step + ahead) * GOLDEN % 1
        return not self._taken or self._mean_s(now_s) > place * self.every_s

    def after(self, every_s: float, now_s: float) -> int:
        """Return the next step behind the one in progress, if one is taken each `every_s`."""
        steps, share = range(self._step + 1, self._step + MOST), self._mean_s(now_s) / every_s
        return next((one for one in steps if one * GOLDEN % 1 < share), steps.stop)

    def _mean_s(self, now_s: float) -> float:
        """Return a step's mean time; infinite before the first one has ended."""
        first, since_s = self._taken[0] if self._taken else (self._step, now_s)
        return (now_s - since_s) / (self._step - first) if self._step > first else inf
