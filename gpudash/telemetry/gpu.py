"""One GPU, named by its UUID: what is read five times a second, and what once a second.

The fast reading is made of calls that take microseconds. The slow one takes milliseconds
(GPM 3, energy 2 to 14) and belongs on a thread of its own. Every value may be missing alone.
`nvmlDeviceGetPcieThroughput` is never called: it blocks for 20 ms.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from gpudash.protocol import GpuReading
from gpudash.telemetry.gpm import Activity
from gpudash.telemetry.nvml import GpuUnavailable, NotMeasured, Nvml, first_measured
from gpudash.telemetry.processes import MIB

T = TypeVar("T")
Values: TypeAlias = dict[str, float | str]
"""Metric → what was read."""

CORE_SENSOR = 0
SM_CLOCK = 1
POWER_INSTANT = 186
PCIE_TX_BYTES, PCIE_RX_BYTES = 197, 198

THROTTLE_REASONS = {
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bit → name. Idling (0x1) and clocks set by the user (0x2) hold nothing down."""


class GpuName(msgspec.Struct, frozen=True, kw_only=True):
    """How a GPU is addressed and shown."""

    index: int
    uuid: str
    name: str


class Gpu:
    """An open GPU. One thread may take fast readings while another takes slow ones.

    Each kind of reading gives its values by metric, and raises `NotMeasured` where there are none;
    `fast` and `slow` leave it out then, and raise `GpuUnavailable` once the GPU or driver is gone.
    """

    def __init__(self, nvml: Nvml, handle: Any, uuid: str) -> None:
        """Take over the connection: `close` closes it."""
        self._nvml = nvml
        self._handle = handle
        # Temperature and clocks are the chip's, also for one MIG slice of it.
        self._board, instance = _board(nvml, handle, uuid)
        self.id = _name(nvml, self._board, handle, uuid)
        self._activity = Activity(nvml, self._board, instance)
        self._pcie = ByteCounters(nvml, handle)
        self._activity_s: float | None = None  # up to when its means have been read

    def fast(self) -> GpuReading:
        """Read what takes microseconds."""
        at_s = time.monotonic()
        values: Values = {}
        for read in FAST.values():
            values |= or_none(partial(read, self)) or {}
        return GpuReading(at_s=at_s, values=values, **msgspec.structs.asdict(self.id))

    def slow(self) -> GpuReading:
        """Read what takes milliseconds; activity is the mean since the slow reading before."""
        at_s = time.monotonic()
        activity = or_none(self.activity) or {}
        if {"pcie_rx_mib_s", "pcie_tx_mib_s"} - activity.keys():
            activity = (or_none(self.pcie) or {}) | activity
        since_s = self._activity_s
        if activity or since_s is None:
            self._activity_s = at_s
        energy_at_s = time.monotonic()
        energy = or_none(self.energy) or {}
        return GpuReading(
            at_s=at_s,
            values=activity | energy,
            activity_since_s=since_s if activity else None,
            energy_at_s=energy_at_s if energy else None,
            **msgspec.structs.asdict(self.id),
        )

    def close(self) -> None:
        """Free what the driver holds for us and give the connection back."""
        self._activity.close()
        self._nvml.close()

    def utilisation(self) -> Values:
        """GPU and memory controller, percent of the driver's last sampling period."""
        rates = self._nvml.call("nvmlDeviceGetUtilizationRates", self._handle)
        return {"gpu_util_pct": float(rates.gpu), "mem_util_pct": float(rates.memory)}

    def memory(self) -> Values:
        """MiB used, free and in total; version 2 counts what the driver reserves as neither."""
        memory = first_measured(
            lambda: self._nvml.call(
                "nvmlDeviceGetMemoryInfo",
                self._handle,
                self._nvml.constant("nvmlMemory_v2"),
                question="nvmlDeviceGetMemoryInfo_v2",
            ),
            lambda: self._nvml.call("nvmlDeviceGetMemoryInfo", self._handle),
        )
        return {
            "mem_used_mib": memory.used / MIB,
            "mem_total_mib": memory.total / MIB,
            "mem_free_mib": memory.free / MIB,
        }

    def power(self) -> Values:
        """Watts at this instant; on an older driver the mean over the last second."""
        milliwatts = first_measured(
            lambda: self._nvml.field(self._handle, POWER_INSTANT),
            lambda: float(self._nvml.call("nvmlDeviceGetPowerUsage", self._handle)),
        )
        return {"power_w": milliwatts / 1000}

    def temperature(self) -> Values:
        """Of the GPU core, °C."""
        degrees = first_measured(
            lambda: self._nvml.call("nvmlDeviceGetTemperatureV", self._board, CORE_SENSOR),
            lambda: self._nvml.call("nvmlDeviceGetTemperature", self._board, CORE_SENSOR),
        )
        return {"temperature_c": float(degrees)}

    def clocks(self) -> Values:
        """Clock of the SMs, MHz."""
        sm_mhz = self._nvml.call("nvmlDeviceGetClockInfo", self._board, SM_CLOCK)
        return {"sm_clock_mhz": float(sm_mhz)}

    def throttle(self) -> Values:
        """`none`, or the reasons that hold the clocks down, joined by `+`."""
        reasons: int = first_measured(
            lambda: self._nvml.call("nvmlDeviceGetCurrentClocksEventReasons", self._board),
            lambda: self._nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", self._board),
        )
        names = [name for bit, name in THROTTLE_REASONS.items() if reasons & bit]
        return {"throttle": "+".join(names) or "none"}

    def energy(self) -> Values:
        """Joules since the driver was loaded."""
        millijoules = self._nvml.call("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        return {"energy_j": float(millijoules) / 1000}

    def activity(self) -> Values:
        """GPM metrics since the reading before; see `gpm.Activity.read`."""
        return self._activity.read()

    def pcie(self) -> Values:
        """PCIe MiB/s each way since the reading before; empty at first."""
        return self._pcie.read()


FAST: dict[str, Callable[[Gpu], Values]] = {
    "utilisation": Gpu.utilisation,
    "memory": Gpu.memory,
    "power": Gpu.power,
    "temperature": Gpu.temperature,
    "clocks": Gpu.clocks,
    "throttle reasons": Gpu.throttle,
}
"""What is read five times a second: name in a report → how."""
SLOW: dict[str, Callable[[Gpu], Values]] = {
    "energy": Gpu.energy,
    "SM, tensor and DRAM activity": Gpu.activity,
    "PCIe counters": Gpu.pcie,
}
"""What `Gpu.slow` makes one reading of; rates need `gpm.SHORTEST_S` between two."""


class ByteCounters:
    """PCIe traffic from the driver's byte counters, for GPUs whose GPM does not tell it."""

    def __init__(self, nvml: Nvml, handle: object) -> None:
        self._nvml = nvml
        self._handle = handle
        self._before: tuple[float, float, float] | None = None

    def read(self) -> Values:
        """MiB/s each way since the reading before; empty at first and when a counter wrapped."""
        tx_bytes = self._nvml.field(self._handle, PCIE_TX_BYTES)
        rx_bytes = self._nvml.field(self._handle, PCIE_RX_BYTES)
        before, self._before = self._before, (time.monotonic(), tx_bytes, rx_bytes)
        if before is None:
            return {}
        elapsed_s, tx, rx = (now - then for now, then in zip(self._before, before, strict=True))
        if elapsed_s <= 0 or tx < 0 or rx < 0:
            return {}
        return {"pcie_tx_mib_s": tx / MIB / elapsed_s, "pcie_rx_mib_s": rx / MIB / elapsed_s}


def open_gpu(uuid: str) -> Gpu:
    """Open the GPU or MIG device of this UUID (`GPU-…`, `MIG-…`); raises `GpuUnavailable`."""
    nvml = Nvml()
    try:
        if not nvml.call("nvmlDeviceGetCount"):
            raise GpuUnavailable("no NVIDIA GPU is present")  # noqa: TRY301  # closed below
        return Gpu(nvml, nvml.call("nvmlDeviceGetHandleByUUID", uuid), uuid)
    except NotMeasured as error:
        nvml.close()
        raise GpuUnavailable(f"{uuid} cannot be opened: {error}") from None
    except BaseException:
        nvml.close()
        raise


def list_gpus() -> tuple[str, tuple[GpuName, ...]]:
    """Return the driver's version and the GPUs it shows, in its order; or `GpuUnavailable`."""
    nvml = Nvml()
    try:
        version = or_none(lambda: str(nvml.call("nvmlSystemGetDriverVersion")))
        listed = (_listed(index) for index in range(nvml.call("nvmlDeviceGetCount")))
        return version or "unknown", tuple(gpu for gpu in listed if gpu is not None)
    except NotMeasured as error:
        raise GpuUnavailable(str(error)) from None
    finally:
        nvml.close()


def or_none(read: Callable[[], T]) -> T | None:
    """Value of this reader, or None where it has none."""
    try:
        return read()
    except NotMeasured:
        return None


def _board(nvml: Nvml, handle: Any, uuid: str) -> tuple[Any, int | None]:
    """Handle of the physical GPU, and the GPU instance when the UUID names a slice of it."""
    if not uuid.startswith("MIG-"):
        return handle, None
    instance = or_none(lambda: int(nvml.call("nvmlDeviceGetGpuInstanceId", handle)))
    board = or_none(lambda: nvml.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle))
    # Without its instance number, the activity of the whole board would pass for the slice's.
    return (handle, None) if board is None or instance is None else (board, instance)


def _listed(index: int) -> GpuName | None:
    """One GPU of the list; None when it does not answer, which hides none of the others."""
    nvml = Nvml()  # of its own: what this GPU refuses for good, the others may answer
    try:
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
        return _name(nvml, handle, handle, nvml.call("nvmlDeviceGetUUID", handle))
    except (NotMeasured, GpuUnavailable):
        return None
    finally:
        nvml.close()


def _name(nvml: Nvml, board: object, handle: object, uuid: str) -> GpuName:
    index = or_none(lambda: nvml.call("nvmlDeviceGetIndex", board))
    name = or_none(lambda: nvml.call("nvmlDeviceGetName", handle))
    return GpuName(index=-1 if index is None else index, uuid=uuid, name=name or "NVIDIA GPU")
