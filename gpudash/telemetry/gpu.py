"""Readings of one GPU, named by its UUID: fast ones five times a second, slow ones once a second.

A slow reading takes milliseconds (GPM 3, energy 2 to 14), so it belongs on a thread of its own.
`nvmlDeviceGetPcieThroughput` is never called: it blocks for 20 ms.
"""

import time
from collections.abc import Callable, Collection
from typing import Any, TypeAlias, TypeVar

import msgspec

from gpudash.metrics import METRICS
from gpudash.protocol.readings import GpuReading
from gpudash.telemetry.gpm import ActivityReader
from gpudash.telemetry.gpu_processes import OtherProcesses
from gpudash.telemetry.nvml import GpuUnavailable, NotMeasured, Nvml, first_measured
from gpudash.telemetry.procfs import MIB

T = TypeVar("T")
Values: TypeAlias = dict[str, float | str]
"""Metric → value."""

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
"""Bit → name. Idling (0x1) and clocks set by the user (0x2) are not throttling."""


MOST = {
    "%": 101.0,  # the driver rounds its counters
    "MiB": 2.0**26,
    "MiB/s": 2.0**26,
    "W": 1e5,
    "J": 1e13,
    "°C": 200.0,
    "MHz": 1e5,
}
"""Unit → the most that a GPU can have. Drivers say “unknown” by the largest number of the type."""
ABOVE_ZERO = ("W", "J")
"""Units in which a running GPU cannot have 0: such a driver does not measure."""


class GpuName(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a GPU: its index and UUID in the driver, and its product name."""

    index: int
    uuid: str
    name: str


class Gpu:
    """An open GPU, for one thread.

    A method for one kind of value raises `NotMeasured` where there is none. `fast` and `slow` note
    the reason in `unread`. All raise `GpuUnavailable` once the GPU or the driver is gone.
    """

    def __init__(self, nvml: Nvml, handle: Any, uuid: str) -> None:
        """Take over the connection `nvml`: `close` closes it."""
        self._nvml = nvml
        self._handle = handle
        # Temperature and clocks are read from the whole chip, even for a MIG slice.
        self._board, instance = _board(nvml, handle, uuid)
        self.id = _name(nvml, self._board, handle, uuid)
        self._activity = ActivityReader(nvml, self._board, instance)
        self._pcie = _ByteCounters(nvml, handle)
        self._others = OtherProcesses(nvml, handle)
        self.training: Callable[[], Collection[int]] = tuple
        """Returns the pids of the training's processes, without their descendants."""
        self._counts_pcie = True  # until activity has it
        self._energy_at_s = 0.0
        self._slow_s = 0.0  # when the newest slow reading began; 0: there was none
        self._since_s: float | None = None  # what it has of activity began then; None: nothing
        self.unread: dict[str, str] = {}
        """Name of a reading whose last call had no value → the reason."""

    def fast(self) -> GpuReading:
        at_s = time.monotonic()
        values = self._all(FAST)
        return GpuReading(at_s=at_s, values=values, **msgspec.structs.asdict(self.id))

    def slow(self) -> GpuReading:
        at_s = self._slow_s = time.monotonic()
        self._since_s = None
        asked = SLOW if self._counts_pcie else SLOW.keys() - {"PCIe counters"}
        values = self._all({name: SLOW[name] for name in SLOW if name in asked})
        return GpuReading(
            at_s=at_s,
            values=values,
            activity_since_s=self._since_s,
            energy_at_s=self._energy_at_s if "energy_j" in values else None,
            others_pct=self._others.used_pct,
            busiest_other=self._others.busiest,
            **msgspec.structs.asdict(self.id),
        )

    def _all(self, readings: dict[str, Callable[["Gpu"], Values]]) -> Values:
        values: Values = {}
        passing = ""
        for name, read in readings.items():
            try:
                found = read(self)
            except NotMeasured as error:
                self.unread[name] = str(error)
                passing = passing if error.lasts else str(error)
                continue
            wrong = [metric for metric, value in found.items() if not _can_be(metric, value)]
            self.unread.pop(name, None)
            if wrong:
                self.unread[name] = f"the driver's {wrong[0]} of {found[wrong[0]]:g} cannot be"
            right = {metric: found[metric] for metric in found if metric not in wrong}
            values = right | values
        if passing and not values:
            raise GpuUnavailable(passing)
        return values

    def close(self) -> None:
        self._activity.close()
        self._nvml.close()

    def utilisation(self) -> Values:
        """Return percent of the driver's sampling period."""
        rates = self._nvml.call("nvmlDeviceGetUtilizationRates", self._handle)
        return {"gpu_util_pct": float(rates.gpu), "mem_util_pct": float(rates.memory)}

    def memory(self) -> Values:
        """Memory reserved by the driver is neither used nor free (version 2 of the call)."""
        memory = first_measured(
            lambda: self._nvml.call(
                "nvmlDeviceGetMemoryInfo",
                self._handle,
                self._nvml.constant("nvmlMemory_v2"),
                question="nvmlDeviceGetMemoryInfo_v2",
            ),
            lambda: self._nvml.call("nvmlDeviceGetMemoryInfo", self._handle),
        )
        if not memory.total:
            raise NotMeasured("the driver says that there is none")
        return {
            "mem_used_mib": memory.used / MIB,
            "mem_total_mib": memory.total / MIB,
            "mem_free_mib": memory.free / MIB,
        }

    def power(self) -> Values:
        milliwatts = first_measured(
            lambda: self._nvml.field(self._handle, POWER_INSTANT),
            lambda: float(self._nvml.call("nvmlDeviceGetPowerUsage", self._handle)),
        )
        return {"power_w": milliwatts / 1000}

    def temperature(self) -> Values:
        degrees = first_measured(
            lambda: self._nvml.call("nvmlDeviceGetTemperatureV", self._board, CORE_SENSOR),
            lambda: self._nvml.call("nvmlDeviceGetTemperature", self._board, CORE_SENSOR),
        )
        return {"temperature_c": float(degrees)}

    def clocks(self) -> Values:
        sm_mhz = self._nvml.call("nvmlDeviceGetClockInfo", self._board, SM_CLOCK)
        return {"sm_clock_mhz": float(sm_mhz)}

    def throttle(self) -> Values:
        reasons: int = first_measured(
            lambda: self._nvml.call("nvmlDeviceGetCurrentClocksEventReasons", self._board),
            lambda: self._nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", self._board),
        )
        names = [name for bit, name in THROTTLE_REASONS.items() if reasons & bit]
        return {"throttle": "+".join(names) or "none"}

    def energy(self) -> Values:
        self._energy_at_s = time.monotonic()
        return {"energy_j": self.joules()}

    def joules(self) -> float:
        """Count from when the driver was loaded."""
        millijoules = self._nvml.call("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        return float(millijoules) / 1000

    def power_limit(self) -> Values:
        milliwatts = self._nvml.call("nvmlDeviceGetEnforcedPowerLimit", self._board)
        return {"power_limit_w": float(milliwatts) / 1000}

    def activity(self) -> Values:
        activity = self._activity.read(self._slow_s or time.monotonic())
        if activity:
            self._since_s = self._activity.since_s
        self._counts_pcie = not {"pcie_rx_mib_s", "pcie_tx_mib_s"} <= activity.keys()
        return activity

    def pcie(self) -> Values:
        found = self._pcie.read()
        if found and self._since_s is None:
            self._since_s = self._pcie.since_s
        return found

    def others(self) -> Values:
        self._others.read(self.training())
        return {}


FAST: dict[str, Callable[[Gpu], Values]] = {
    "utilisation": Gpu.utilisation,
    "memory": Gpu.memory,
    "power": Gpu.power,
    "temperature": Gpu.temperature,
    "clocks": Gpu.clocks,
    "throttle reasons": Gpu.throttle,
}
"""Fast readings: name in the doctor's report → method."""
SLOW: dict[str, Callable[[Gpu], Values]] = {
    "SM, tensor and DRAM activity": Gpu.activity,
    "PCIe counters": Gpu.pcie,
    "energy": Gpu.energy,
    "other processes": Gpu.others,
    "power limit": Gpu.power_limit,
}
"""Slow readings: name → method. Rates need `gpm.SHORTEST_S` between two of them."""


def _can_be(metric: str, value: float | str) -> bool:
    if isinstance(value, str):
        return True
    unit = METRICS[metric].unit
    return (value > 0 if unit in ABOVE_ZERO else value >= 0) and value <= MOST[unit]


class _ByteCounters:
    """PCIe traffic from the driver's byte counters, for GPUs whose GPM does not report it."""

    def __init__(self, nvml: Nvml, handle: object) -> None:
        self._nvml = nvml
        self._handle = handle
        self._before: tuple[float, float, float] | None = None
        self.since_s = 0.0
        """When the reading before the newest one was."""

    def read(self) -> Values:
        """Return MiB/s each way; empty at first and when a counter has wrapped."""
        tx_bytes = self._nvml.field(self._handle, PCIE_TX_BYTES)
        rx_bytes = self._nvml.field(self._handle, PCIE_RX_BYTES)
        before, self._before = self._before, (time.monotonic(), tx_bytes, rx_bytes)
        if before is None:
            return {}
        self.since_s = before[0]
        elapsed_s, tx, rx = (now - then for now, then in zip(self._before, before, strict=True))
        if elapsed_s <= 0 or tx < 0 or rx < 0:
            return {}
        return {"pcie_tx_mib_s": tx / MIB / elapsed_s, "pcie_rx_mib_s": rx / MIB / elapsed_s}


def open_gpu(uuid: str) -> Gpu:
    """Open a GPU or MIG device (`GPU-…`, `MIG-…`). Raises `GpuUnavailable`."""
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
    """Return the driver's version and the GPUs in its order. Raises `GpuUnavailable`."""
    nvml = Nvml()
    try:
        version = _or_none(lambda: str(nvml.call("nvmlSystemGetDriverVersion")))
        listed = (_listed(index) for index in range(nvml.call("nvmlDeviceGetCount")))
        return version or "unknown", tuple(gpu for gpu in listed if gpu is not None)
    except NotMeasured as error:
        raise GpuUnavailable(str(error)) from None
    finally:
        nvml.close()


def _or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except NotMeasured:
        return None


def _board(nvml: Nvml, handle: Any, uuid: str) -> tuple[Any, int | None]:
    if not uuid.startswith("MIG-"):
        return handle, None
    instance = _or_none(lambda: int(nvml.call("nvmlDeviceGetGpuInstanceId", handle)))
    board = _or_none(lambda: nvml.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle))
    # Without an instance number, the activity of the whole board would be shown as the slice's.
    return (handle, None) if board is None or instance is None else (board, instance)


def _listed(index: int) -> GpuName | None:
    nvml = Nvml()  # its own connection: others may answer a question that this GPU refuses
    try:
        handle = nvml.call("nvmlDeviceGetHandleByIndex", index)
        return _name(nvml, handle, handle, nvml.call("nvmlDeviceGetUUID", handle))
    except (NotMeasured, GpuUnavailable):
        return None
    finally:
        nvml.close()


def _name(nvml: Nvml, board: object, handle: object, uuid: str) -> GpuName:
    index = _or_none(lambda: nvml.call("nvmlDeviceGetIndex", board))
    name = _or_none(lambda: nvml.call("nvmlDeviceGetName", handle))
    return GpuName(index=-1 if index is None else index, uuid=uuid, name=name or "NVIDIA GPU")
