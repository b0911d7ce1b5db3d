"""Energy of a block, from the driver's counters, whose ticks of about 100 ms are interpolated."""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from math import fsum, hypot, sqrt
from operator import attrgetter
from typing import NamedTuple

from gpudash.protocol.readings import EnergyTick
from gpudash.protocol.training import TrainingProcess

LEAST_S = 2.0
"""No figure from less: the ticks at its edges would weigh too much."""
BLOCK_S = 2.5
"""Least seconds of a block whose energy is asked for: its last step is not measured."""
REACH_S = 0.5
"""Most seconds between the ticks around a block's edge."""
KEPT = 4096


class BlockEnergy(NamedTuple):
    """Energy of one or all GPUs over a block."""

    joules: float
    within_j: float
    """Standard error by the moments of the ticks."""


def gpus_of(process: TrainingProcess | None) -> int:
    if process is None or process.device.kind == "cpu":
        return 0
    return process.world_size * process.gpus


class EnergyMeter:
    """The ticks of the energy counters of a training's GPUs."""

    def __init__(self, gpus: int) -> None:
        """With the counters of fewer or of more than `gpus` no energy is known."""
        self._gpus = gpus
        self._ticks: dict[str, deque[EnergyTick]] = {}

    def add(self, tick: EnergyTick) -> None:
        self._ticks.setdefault(tick.uuid, deque(maxlen=KEPT)).append(tick)

    def reaches(self, at_s: float) -> bool:
        known = self._ticks.values()
        return len(known) >= self._gpus and all(one[-1].at_s > at_s for one in known)

    def spent(self, began_s: float, ended_s: float) -> BlockEnergy | str:
        if not self._gpus:
            return "it does not train on a GPU"
        if ended_s - began_s < LEAST_S:
            return f"blocks of less than {LEAST_S:g} s"
        if len(self._ticks) != self._gpus:  # ranks may share one, or other trainings run beside
            return f"GPUs that train: {self._gpus}, energy counters read: {len(self._ticks)}"
        found = [_spent([*ticks], began_s, ended_s) for ticks in self._ticks.values()]
        known = [one for one in found if isinstance(one, BlockEnergy)]
        if len(known) < len(found):
            return next(one for one in found if isinstance(one, str))
        return BlockEnergy(
            fsum(one.joules for one in known), hypot(*(one.within_j for one in known))
        )


def _spent(ticks: Sequence[EnergyTick], began_s: float, ended_s: float) -> BlockEnergy | str:
    first, last = (bisect_right(ticks, at_s, key=attrgetter("at_s")) for at_s in (began_s, ended_s))
    if first == 0 or last == len(ticks):
        return "the energy counter was not read all the time"
    used = ticks[first - 1 : last + 1]
    if any(after.energy_j < before.energy_j for before, after in pairwise(used)):
        return "the energy counter went backwards"
    edges = ((ticks[first - 1], ticks[first], began_s), (ticks[last - 1], ticks[last], ended_s))
    if any(after.at_s - before.at_s > REACH_S for before, after, _ in edges):
        return "the energy counter was not read all the time"
    start_j, end_j = (_at(*edge) for edge in edges)
    power_w = (end_j - start_j) / (ended_s - began_s)
    late_s = hypot(*(max(before.within_s, after.within_s) for before, after, _ in edges))
    return BlockEnergy(end_j - start_j, power_w * late_s / sqrt(3))  # a tick is anywhere within


def _at(before: EnergyTick, after: EnergyTick, at_s: float) -> float:
    share = (at_s - before.at_s) / (after.at_s - before.at_s)
    return before.energy_j + (after.energy_j - before.energy_j) * share
