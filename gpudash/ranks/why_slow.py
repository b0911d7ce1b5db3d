"""Explain why a rank is slow, by what its GPU or host has that the other ranks' have not."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from statistics import median
from typing import TypeVar

from gpudash import format as fmt
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.session import Straggler
from gpudash.protocol.training import Progress
from gpudash.ranks.recent import ReadingT, RecentReadings

KeyT = TypeVar("KeyT")

SLOWER_CLOCK = 0.97
"""A clock below this part of the other GPUs' is slow; they normally differ by less."""
REASONS = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "power brake",
    "board_limit": "board limit",
}
"""Words for the reasons in the metric `throttle`; others are shown by name."""
ON_HOST = ("data", "host", "your_code")
NOT_COMPUTED = (*ON_HOST, "copy")
"""Phases that do not depend on a GPU's clock, power or heat."""
LATELY_S = 8.0
"""Seconds over which clocks and owners are averaged: under a power cap a clock wanders."""
CORES = "core_wait_pct"
OWNERS = {
    CORES: "cores are short: rank {} waits for one",
    "blocked_pct": "rank {} waits off the CPU",
    "gc_pct": "rank {} collects garbage",
    "compile_pct": "rank {} compiles",
    "unpack_pct": "rank {} makes or unpacks batches",
    "loader_start_pct": "rank {} starts loader workers",
}
"""Who may have the time of a rank's host, in words."""
OWNED = 0.5
"""The part of a delay that an owner has to explain."""


class Readings:
    """The newest readings of each GPU that a rank trains on, and of each rank's processes."""

    def __init__(self) -> None:
        self._uuid_of: dict[int, str] = {}
        self._gpus: dict[str, RecentReadings[GpuReading]] = {}
        self._hosts: dict[int, RecentReadings[HostReading]] = {}
        self._owners: dict[int, RecentReadings[HostReading]] = {}

    def train(self, rank: int, uuid: str | None) -> None:
        if uuid is not None:
            self._uuid_of[rank] = uuid

    def take(self, rank: int, reading: GpuReading | HostReading) -> None:
        if isinstance(reading, HostReading):
            self._hosts.setdefault(rank, RecentReadings(LATELY_S)).add(reading)
        else:
            self._gpus.setdefault(reading.uuid, RecentReadings(LATELY_S)).add(reading)

    def take_owners(self, rank: int, report: Progress) -> None:
        if not OWNERS.keys().isdisjoint(report.values):
            told = HostReading(at_s=report.until_s, values=dict(report.values))
            self._owners.setdefault(rank, RecentReadings(LATELY_S)).add(told)

    def why(self, straggler: Straggler) -> str:
        if straggler.kind != "persistent":
            return ""
        by_gpu = () if straggler.phase in NOT_COMPUTED else self._gpu_is_slow(straggler.rank)
        return ", ".join(by_gpu) or ", ".join(self._host_is_late(straggler))

    def _host_is_late(self, straggler: Straggler) -> Iterator[str]:
        """Name who has most more of this host's time than of the others'.

        A GPU idles too where its host waits for a core, as launches come late.
        """
        shares = _shares(_now(self._hosts), _now(self._owners))
        own = shares.pop(straggler.rank, {})
        others = {name: [one[name] for one in shares.values() if name in one] for name in own}
        usual = {name: median(pcts) for name, pcts in others.items() if pcts}
        if own.get(CORES, 0.0) < CORE_WAIT_WARNS_PCT or straggler.phase == "copy":
            own.pop(CORES, None)
        elif straggler.phase in ON_HOST:
            usual.setdefault(CORES, 0.0)
        more = {name: own[name] - usual[name] for name in own if name in usual}
        name = max(more, key=lambda one: more[one], default="")
        if name and more[name] >= OWNED * straggler.slower_pct:
            yield f"{OWNERS[name].format(straggler.rank)} {fmt.percent(own[name])} of the time"
            if others[name]:
                yield f"the others {fmt.percent(usual[name])}"

    def _gpu_is_slow(self, rank: int) -> Iterator[str]:
        now = _now(self._gpus)
        trained_on = {one: now.get(uuid) for one, uuid in self._uuid_of.items()}
        own = trained_on.pop(rank, None)
        others = [one for one in trained_on.values() if one is not None]
        if own is None or not others:
            return
        held = _reasons(own).difference(*map(_reasons, others))
        if held:
            yield f"{' and '.join(sorted(held))} on GPU {own.index}"
        clock_mhz = own.number("sm_clock_mhz")
        clocks_mhz = [mhz for one in others if (mhz := one.number("sm_clock_mhz")) is not None]
        if clock_mhz is not None and clocks_mhz:
            usual_mhz = median(clocks_mhz)
            if clock_mhz < SLOWER_CLOCK * usual_mhz:
                yield f"its clock is {clock_mhz:,.0f} MHz, the others' {usual_mhz:,.0f} MHz"
        temperature_c = own.number("temperature_c")
        if "heat" in held and temperature_c is not None:
            yield f"{temperature_c:.0f} °C"


def _shares(*read: Mapping[int, HostReading]) -> dict[int, dict[str, float]]:
    shares = defaultdict[int, dict[str, float]](dict)
    for rank, one in chain.from_iterable(each.items() for each in read):
        known = {name: one.number(name) for name in OWNERS}
        shares[rank] |= {name: pct for name, pct in known.items() if pct is not None}
    return shares


def _now(read: Mapping[KeyT, RecentReadings[ReadingT]]) -> dict[KeyT, ReadingT]:
    return {key: one for key, readings in read.items() if (one := readings.now()) is not None}


def _reasons(reading: GpuReading) -> set[str]:
    throttle = str(reading.values.get("throttle", "none"))
    names = () if throttle == "none" else throttle.split("+")
    return {REASONS.get(name, fmt.plain(name).replace("_", " ")) for name in names}
