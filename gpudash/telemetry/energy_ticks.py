"""Finds the moments at which a GPU's energy counter moves on, and when to look for the next.

The counter's period is measured at the start: until then it is read without a pause. After that it
is read only around the moments at which it is due.
"""

import time
from collections import deque
from itertools import pairwise
from statistics import median

from gpudash.protocol.readings import EnergyTick
from gpudash.telemetry.gpu import Gpu
from gpudash.telemetry.nvml import GpuUnavailable

PAUSE_S = 0.004
"""Seconds between two reads while a tick is awaited."""
MEASURED = 12
"""Ticks by which the period is measured."""
PATIENCE_S = 1.0
"""Seconds until a tick that does not come is given up."""
EARLY = 0.1
"""Part of the period by which a tick may come early."""


class TickFinder:
    """Folds reads of one counter into its ticks."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._before: tuple[float, float] | None = None  # the last read: its begin, and its joules
        self._ticked_s: deque[float] = deque(maxlen=MEASURED)
        self.period_s: float | None = None
        """Seconds between two ticks; None until it is measured."""

    def add(self, began_s: float, ended_s: float, energy_j: float) -> EnergyTick | None:
        """Add a read that took from `began_s` to `ended_s`; return the tick that it shows, if any.

        The tick came between the begin of the read before and the end of this one.
        """
        before, self._before = self._before, (began_s, energy_j)
        if before is None or energy_j == before[1]:
            return None
        if energy_j < before[1]:  # the driver was loaded anew
            self._ticked_s.clear()
        at_s, within_s = (before[0] + ended_s) / 2, (ended_s - before[0]) / 2
        self._ticked_s.append(at_s)
        if self.period_s is None and len(self._ticked_s) == MEASURED:
            self.period_s = median(late - early for early, late in pairwise(self._ticked_s))
        return EnergyTick(
            at_s=at_s,
            uuid=self._uuid,
            energy_j=energy_j,
            within_s=within_s,
            period_s=self.period_s,
        )

    def next_s(self, now_s: float) -> float:
        """Return when to read next."""
        soon_s = now_s + PAUSE_S
        if self.period_s is None or not self._ticked_s:
            return soon_s
        early_s = max(EARLY * self.period_s, 2 * PAUSE_S)
        return max(soon_s, self._ticked_s[-1] + self.period_s - early_s)


class TickReader:
    """Reads the ticks of one connection after the other to a GPU."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._gpu: Gpu | None = None
        self._finder = TickFinder(uuid)

    def next(self, gpu: Gpu) -> EnergyTick:
        """Wait for the next tick. Raises `GpuUnavailable` if there is none for long."""
        if gpu is not self._gpu:
            self._gpu, self._finder = gpu, TickFinder(self._uuid)
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            time.sleep(max(0.0, self._finder.next_s(time.monotonic()) - time.monotonic()))
            began_s = time.monotonic()
            energy_j = gpu.joules()
            tick = self._finder.add(began_s, time.monotonic(), energy_j)
            if tick is not None:
                return tick
        raise GpuUnavailable("the energy counter stands still")
