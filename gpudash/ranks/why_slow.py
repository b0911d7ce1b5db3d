"""Explain why a rank is slow, by readings of its GPU or host that differ from the other ranks'."""

from collections import deque
from collections.abc import Iterable, Iterator
from statistics import fmean, median

from gpudash import format as fmt
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.protocol.session import Straggler

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
"""Seconds over which a clock is averaged: under a power cap it wanders."""


class Readings:
    """The newest readings of each GPU that a rank trains on, and of each rank's processes."""

    def __init__(self) -> None:
        self._uuid_of: dict[int, str] = {}
        self._gpus: dict[str, deque[GpuReading]] = {}
        self._hosts: dict[int, HostReading] = {}

    def train(self, rank: int, uuid: str | None) -> None:
        if uuid is not None:
            self._uuid_of[rank] = uuid

    def take(self, rank: int, reading: GpuReading | HostReading) -> None:
        if isinstance(reading, HostReading):
            self._hosts[rank] = reading
        else:
            readings = self._gpus.setdefault(reading.uuid, deque())
            readings.append(reading)
            while readings[0].at_s < reading.at_s - LATELY_S:
                readings.popleft()

    def why(self, straggler: Straggler) -> str:
        if straggler.kind != "persistent":
            return ""
        by_gpu = () if straggler.phase in NOT_COMPUTED else self._gpu_is_slow(straggler.rank)
        return ", ".join(by_gpu) or ", ".join(self._host_is_late(straggler))

    def _host_is_late(self, straggler: Straggler) -> Iterator[str]:
        """Say that the rank waits for a core. Its GPU then idles, as launches come late."""
        if straggler.phase == "copy":
            return
        waits = {rank: one.number("core_wait_pct") for rank, one in self._hosts.items()}
        own_pct = waits.pop(straggler.rank, None)
        if own_pct is None or own_pct < CORE_WAIT_WARNS_PCT:
            return
        known = [pct for pct in waits.values() if pct is not None]
        others_pct = median(known) if known else None
        is_alone = others_pct is not None and others_pct < CORE_WAIT_WARNS_PCT
        if straggler.phase not in ON_HOST and not is_alone:
            return
        waiting = f"rank {straggler.rank} waits for one {fmt.percent(own_pct)} of the time"
        yield f"cores are short: {waiting}"
        if others_pct is not None:
            yield f"the others {fmt.percent(others_pct)}"

    def _gpu_is_slow(self, rank: int) -> Iterator[str]:
        trained_on = {one: self._gpus.get(uuid) for one, uuid in self._uuid_of.items()}
        own = trained_on.pop(rank, None)
        others = [one for one in trained_on.values() if one is not None]
        if own is None or not others:
            return
        newest = own[-1]
        held = _reasons(newest).difference(*(_reasons(one[-1]) for one in others))
        if held:
            yield f"{' and '.join(sorted(held))} on GPU {newest.index}"
        clock_mhz = _clock_mhz(own)
        clocks_mhz = [mhz for one in others if (mhz := _clock_mhz(one)) is not None]
        if clock_mhz is not None and clocks_mhz:
            usual_mhz = median(clocks_mhz)
            if clock_mhz < SLOWER_CLOCK * usual_mhz:
                yield f"its clock is {clock_mhz:,.0f} MHz, the others' {usual_mhz:,.0f} MHz"
        temperature_c = newest.number("temperature_c")
        if "heat" in held and temperature_c is not None:
            yield f"{temperature_c:.0f} °C"


def _clock_mhz(readings: Iterable[GpuReading]) -> float | None:
    known = [mhz for one in readings if (mhz := one.number("sm_clock_mhz")) is not None]
    return fmean(known) if known else None


def _reasons(reading: GpuReading) -> set[str]:
    throttle = str(reading.values.get("throttle", "none"))
    names = () if throttle == "none" else throttle.split("+")
    return {REASONS.get(name, fmt.plain(name).replace("_", " ")) for name in names}
