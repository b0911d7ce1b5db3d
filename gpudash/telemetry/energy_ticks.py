"""Finds the moments at which a GPU's energy counter moves on, and when to look for the next.

It is read without a pause until its period is known, then around some of the moments at which it is
due. Who interpolates between ticks does not need each of them.
"""

import time
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
FOLLOWED_S = 0.2
"""Seconds from one tick that is looked for to the next; each if they are further apart."""
EARLY_S, EARLY = 0.006, 0.03
"""Seconds before a tick is due at which the counter is read first, or this share of a period."""
OF_MOMENT, OF_PERIOD = 0.3, 0.05
"""Shares of a tick's distance from where it was due by which the next are due differently."""


class TickFinder:
    """Folds reads of one counter into its ticks."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._before: tuple[float, float] | None = None  # the last read: its begin, and its joules
        self._ticked_s: list[float] = []  # until the period is known
        self._tick_s = self._due_s = 0.0  # the last tick, smoothed, and the next one looked for
        self.period_s: float | None = None
        """Seconds between two ticks; None until it is measured."""

    def add(self, began_s: float, ended_s: float, energy_j: float) -> EnergyTick | None:
        before, self._before = self._before, (began_s, energy_j)
        if before is None or energy_j == before[1]:
            return None
        at_s, within_s = (before[0] + ended_s) / 2, (ended_s - before[0]) / 2
        if self.period_s is None:
            self._measure(at_s, is_backwards=energy_j < before[1])
        else:
            self._follow(self.period_s, at_s)
        return EnergyTick(
            at_s=at_s,
            uuid=self._uuid,
            energy_j=energy_j,
            within_s=within_s,
            period_s=self.period_s,
        )

    def next_s(self, now_s: float) -> float:
        early_s = max(EARLY_S, EARLY * (self.period_s or 0.0))
        return max(now_s + PAUSE_S, self._due_s - early_s)

    def _measure(self, at_s: float, *, is_backwards: bool) -> None:
        if is_backwards:  # the driver was loaded anew
            self._ticked_s.clear()
        self._ticked_s.append(at_s)
        if len(self._ticked_s) == MEASURED:
            lengths = [late - early for early, late in pairwise(self._ticked_s)]
            periods = sum(round(one / median(lengths)) for one in lengths)
            self.period_s = (at_s - self._ticked_s[0]) / max(periods, 1)
            self._tick_s = at_s
            self._look_for_next(self.period_s)

    def _follow(self, period_s: float, at_s: float) -> None:
        passed = max(round((at_s - self._tick_s) / period_s), 1)
        due_s = self._tick_s + passed * period_s
        self._tick_s = due_s + OF_MOMENT * (at_s - due_s)
        self.period_s = period_s + OF_PERIOD * (at_s - due_s) / passed
        self._look_for_next(period_s)

    def _look_for_next(self, period_s: float) -> None:
        self._due_s = self._tick_s + max(round(FOLLOWED_S / period_s), 1) * period_s
        self._before = None  # ticks in between are of no interest


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
