"""Explain why a rank is slow, by what its GPU or host has that the other ranks' have not."""

from collections.abc import Iterator, Mapping
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
OWNERS = {
    "blocked_pct": "waits off the CPU",
    "gc_pct": "collects garbage",
    "compile_pct": "compiles",
    "unpack_pct": "makes or unpacks batches",
    "loader_start_pct": "starts loader workers",
}
"""Who may have the time of a rank's host, in words."""
OWNED = 0.5
"""The part of a delay that an owner has to explain."""


class Readings:
    """The newest readings of each GPU that a rank trains on, and of each rank's processes."""

    def __init__(self) -> None:
        self._uuid_of: dict[int, str] = {}
        self._gpus: dict[str, RecentReadings[GpuReading]] = {}
        self._hosts: dict[int, HostReading] = {}
        self._owners: dict[int, RecentReadings[HostReading]] = {}

    def train(self, rank: int, uuid: str | None) -> None:
        if uuid is not None:
            self._uuid_of[rank] = uuid

    def take(self, rank: int, reading: GpuReading | HostReading) -> None:
        if isinstance(reading, HostReading):
            self._hosts[rank] = reading
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
        found = map(
            ", ".join, (by_gpu, self._host_is_late(straggler), self._owner_is_late(straggler))
        )
        return next(filter(None, found), "")

    def _host_is_late(self, straggler: Straggler) -> Iterator[str]:
        """Say that the rank waits for a core. Its GPU then idles, as launches come late."""
        waits = {rank: one.number("core_wait_pct") for rank, one in self._hosts.items()}
        own_pct = waits.pop(straggler.rank, None)
        known = [pct for pct in waits.values() if pct is not None]
        others_pct = median(known) if known else None
        is_known = known or straggler.phase in ON_HOST
        if straggler.phase == "copy" or not is_known or own_pct is None:
            return
        more_pct = own_pct - (others_pct or 0.0)
        if own_pct < CORE_WAIT_WARNS_PCT or more_pct < OWNED * straggler.slower_pct:
            return
        waiting = f"rank {straggler.rank} waits for one {fmt.percent(own_pct)} of the time"
        yield f"cores are short: {waiting}"
        if others_pct is not None:
            yield f"the others {fmt.percent(others_pct)}"

    def _owner_is_late(self, straggler: Straggler) -> Iterator[str]:
        """Name the owner that has most more of this host's time than of the others'."""
        shares = {
            rank: {name: pct for name in OWNERS if (pct := one.number(name)) is not None}
            for rank, one in _now(self._owners).items()
        }
        own = shares.pop(straggler.rank, {})
        usual = {
            name: median(one.get(name, 0.0) for one in shares.values()) for name in own if shares
        }
        more = {name: own[name] - usual_pct for name, usual_pct in usual.items()}
        name = max(more, key=lambda one: more[one], default="")
        if name and more[name] >= OWNED * straggler.slower_pct:
            most, others = fmt.percent(own[name]), fmt.percent(usual[name])
            yield f"rank {straggler.rank} {OWNERS[name]} {most} of the time, the others {others}"

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


def _now(read: Mapping[KeyT, RecentReadings[ReadingT]]) -> dict[KeyT, ReadingT]:
    return {key: one for key, readings in read.items() if (one := readings.now()) is not None}


def _reasons(reading: GpuReading) -> set[str]:
    throttle = str(reading.values.get("throttle", "none"))
    names = () if throttle == "none" else throttle.split("+")
    return {REASONS.get(name, fmt.plain(name).replace("_", " ")) for name in names}
