"""Why a rank may be slow: what its GPU shows, or the host, that the other ranks' do not."""

from collections.abc import Iterator
from statistics import median

from gpudash import format as fmt
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol import GpuReading, HostReading
from gpudash.snapshot import Straggler

SLOWER_CLOCK = 0.97
"""Of the other GPUs' clock: they differ by less."""
REASONS = {
    "sw_power_cap": "power cap",
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "power brake",
    "board_limit": "board limit",
}
"""As `throttle` in the metrics has them; others are told as they are."""
ON_HOST = ("data", "host", "your_code")


class Readings:
    """The newest reading of each GPU that a rank trains on, and of the host."""

    def __init__(self) -> None:
        self._uuid_of: dict[int, str] = {}
        self._gpus: dict[str, GpuReading] = {}
        self._host: HostReading | None = None

    def train(self, rank: int, uuid: str | None) -> None:
        """Take on which GPU a rank trains."""
        if uuid is not None:
            self._uuid_of[rank] = uuid

    def take(self, reading: GpuReading | HostReading) -> None:
        """Take a reading."""
        if isinstance(reading, HostReading):
            self._host = reading
        else:
            self._gpus[reading.uuid] = reading

    def why(self, straggler: Straggler) -> str:
        """Return it as a clause; empty where nothing is seen, or it is no single rank's."""
        if straggler.kind != "persistent":
            return ""
        return ", ".join(self._host_is_late(straggler) or self._gpu_is_slow(straggler.rank))

    def _host_is_late(self, straggler: Straggler) -> list[str]:
        waits_pct = self._host.number("core_wait_pct") if self._host is not None else None
        if straggler.phase not in ON_HOST or (waits_pct or 0.0) < CORE_WAIT_WARNS_PCT:
            return []
        return [f"cores are short: rank 0 waits for one {fmt.percent(waits_pct)} of the time"]

    def _gpu_is_slow(self, rank: int) -> Iterator[str]:
        trained_on = {one: self._gpus.get(uuid) for one, uuid in self._uuid_of.items()}
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


def _reasons(reading: GpuReading) -> set[str]:
    told = str(reading.values.get("throttle", "none"))
    names = () if told == "none" else told.split("+")
    return {REASONS.get(name, fmt.plain(name).replace("_", " ")) for name in names}
