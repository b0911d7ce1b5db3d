"""Summarise one GPU over an interval: means of its samples, and energy from its counter."""

from bisect import bisect_left, bisect_right
from math import inf
from operator import itemgetter

import msgspec

from gpudash.metrics import since
from gpudash.protocol.readings import GpuReading
from gpudash.recording.readings import hold, over_time, take

ENERGY_REACH_S = 1.3
"""Most seconds between an interval's border and the counter readings around it. A reading takes
milliseconds, so the counter is read about once a second."""


class GpuInterval(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU during one interval."""

    index: int
    uuid: str
    values: dict[str, float | str] = {}
    """Values by metric; absent if not measured."""


class GpuTrack:
    """The samples of one GPU for intervals that are not complete."""

    def __init__(self, index: int, uuid: str) -> None:
        self._index = index
        self._uuid = uuid
        self.first_s = inf
        """When the GPU was first seen: earlier intervals do not list it."""
        self._samples: list[GpuReading] = []
        self._counter: list[tuple[float, float]] = []  # (energy_at_s, energy_j), in that order
        self._border: tuple[float, float | None] | None = None  # end of the last interval

    def add(self, sample: GpuReading) -> None:
        """Take samples in any order; drop one from before the last interval's end."""
        self.first_s = min(self.first_s, sample.at_s)
        hold(self._samples, sample)
        energy_j = sample.number("energy_j")
        if sample.energy_at_s is not None and energy_j is not None:
            reading = (sample.energy_at_s, energy_j)
            place = bisect_left(self._counter, reading)
            if self._counter[place : place + 1] != [reading]:  # samples repeat readings
                self._counter.insert(place, reading)

    @property
    def metered_s(self) -> float:
        """When the energy counter was last read; infinite if never."""
        return self._counter[-1][0] if self._counter else inf

    def take(self, began_s: float, ended_s: float, settings_s: float) -> GpuInterval:
        """Forget samples up to `ended_s`; values do not cover time before `settings_s`."""
        samples = take(self._samples, began_s, ended_s)
        values = over_time("gpu", [since(one, settings_s) for one in samples])
        energy_j = self._spent(began_s, ended_s)
        if energy_j is not None:
            values["energy_j"] = energy_j
        return GpuInterval(index=self._index, uuid=self._uuid, values=values)

    def _spent(self, began_s: float, ended_s: float) -> float | None:
        # the border's value is kept, so that the intervals' energies add up to the counter's
        if self._border is None or self._border[0] != began_s:
            self._border = (began_s, _counter_at(self._counter, began_s))
        start_j = self._border[1]
        end_j = _counter_at(self._counter, ended_s)
        self._border = (ended_s, end_j)
        del self._counter[: max(bisect_right(self._counter, ended_s, key=itemgetter(0)) - 1, 0)]
        if start_j is None or end_j is None or end_j < start_j:  # a reloaded driver counts from 0
            return None
        return end_j - start_j


def _counter_at(readings: list[tuple[float, float]], at_s: float) -> float | None:
    index = bisect_right(readings, at_s, key=itemgetter(0))
    if index == 0 or at_s - readings[index - 1][0] > ENERGY_REACH_S:
        return None
    before_s, before_j = readings[index - 1]
    if before_s == at_s:
        return before_j
    if index == len(readings) or readings[index][0] - at_s > ENERGY_REACH_S:
        return None
    after_s, after_j = readings[index]
    return before_j + (after_j - before_j) * (at_s - before_s) / (after_s - before_s)
