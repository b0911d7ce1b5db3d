"""What one GPU did during one interval: means of its samples, energy from its counter."""

from bisect import bisect_right, insort
from collections.abc import Iterable
from math import inf

import msgspec

from gpudash.metrics import ACTIVITY, UTILISATION, since
from gpudash.protocol import GpuReading
from gpudash.statistics import mean

ENERGY_REACH_S = 1.3
"""How far from an interval's border the readings of the energy counter around it may lie.
The counter takes milliseconds to read, so it is read about once a second."""


class GpuInterval(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU during one interval: the mean of its samples, None where none was taken."""

    index: int
    uuid: str
    util_pct: float | None = None
    mem_util_pct: float | None = None
    mem_used_mib: float | None = None
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    pcie_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Spent during the interval; None unless the counter was read around both its ends."""
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    throttle: str | None = None
    """Every reason seen, sorted and joined by `+`; `none` if the clocks were never held down."""


AVERAGED = (
    *UTILISATION,
    *ACTIVITY,
    "mem_used_mib",
    "power_w",
    "temperature_c",
    "sm_clock_mhz",
)
"""The fields that a sample and an interval share, and whose mean an interval takes."""


class GpuTrack:
    """The samples of one GPU that belong to intervals still open."""

    def __init__(self, index: int, uuid: str) -> None:
        self._index = index
        self._uuid = uuid
        self.first_s = inf
        """When the GPU was first seen: it has no part in intervals that ended before."""
        self._samples: list[GpuReading] = []
        self._counter: list[tuple[float, float]] = []  # (energy_at_s, energy_j), in that order
        self._border: tuple[float, float | None] | None = None  # where the last interval ended

    def add(self, sample: GpuReading) -> None:
        """Take a sample, in any order; one from before the last interval's end is left out."""
        self.first_s = min(self.first_s, sample.at_s)
        insort(self._samples, sample, key=_time)
        if sample.energy_at_s is not None and sample.energy_j is not None:
            reading = (sample.energy_at_s, sample.energy_j)
            if reading not in self._counter:  # samples repeat it until there is another
                insort(self._counter, reading)

    @property
    def metered_s(self) -> float:
        """When the energy counter was last read; infinite where it never was."""
        return self._counter[-1][0] if self._counter else inf

    def take(self, began_s: float, ended_s: float, settings_s: float) -> GpuInterval:
        """Return the interval (began_s, ended_s] and forget its samples.

        Its settings are in force since `settings_s`: no value of its covers time before.
        """
        first = bisect_right(self._samples, began_s, key=_time)
        end = bisect_right(self._samples, ended_s, key=_time)
        inside = [since(sample, settings_s) for sample in self._samples[first:end]]
        del self._samples[:end]
        means = {name: mean(getattr(sample, name) for sample in inside) for name in AVERAGED}
        return GpuInterval(
            index=self._index,
            uuid=self._uuid,
            energy_j=self._spent(began_s, ended_s),
            throttle=_union(sample.throttle for sample in inside),
            **means,
        )

    def _spent(self, began_s: float, ended_s: float) -> float | None:
        # the border's value is kept, so that the intervals' energies add up to the counter's
        if self._border is None or self._border[0] != began_s:
            self._border = (began_s, _counter_at(self._counter, began_s))
        start_j = self._border[1]
        end_j = _counter_at(self._counter, ended_s)
        self._border = (ended_s, end_j)
        del self._counter[: max(bisect_right(self._counter, ended_s, key=_first) - 1, 0)]
        if start_j is None or end_j is None or end_j < start_j:  # a reloaded driver counts from 0
            return None
        return end_j - start_j


def _counter_at(readings: list[tuple[float, float]], at_s: float) -> float | None:
    """Return the counter at a moment, interpolated between the readings around it."""
    index = bisect_right(readings, at_s, key=_first)
    if index == 0 or at_s - readings[index - 1][0] > ENERGY_REACH_S:
        return None
    before_s, before_j = readings[index - 1]
    if before_s == at_s:
        return before_j
    if index == len(readings) or readings[index][0] - at_s > ENERGY_REACH_S:
        return None
    after_s, after_j = readings[index]
    return before_j + (after_j - before_j) * (at_s - before_s) / (after_s - before_s)


def _union(throttles: Iterable[str | None]) -> str | None:
    seen = {reason for text in throttles if text is not None for reason in text.split("+")}
    if not seen:
        return None
    return "+".join(sorted(seen - {"none"})) or "none"


def _time(sample: GpuReading) -> float:
    return sample.at_s


def _first(reading: tuple[float, float]) -> float:
    return reading[0]
