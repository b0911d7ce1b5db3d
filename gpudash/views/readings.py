"""Keep the recent readings of a run's GPU and of its processes."""

from collections import deque
from typing import Generic, TypeVar

from msgspec.structs import replace

from gpudash.metrics import METRICS
from gpudash.protocol.readings import GpuReading, HostReading, OtherJobs
from gpudash.protocol.training import Device
from gpudash.statistics import Means
from gpudash.views.throughput import NOW_S

OTHERS_S = 10.0
"""Other jobs are shown for so long after they were read: they are read while cores are lacking."""
ReadingT = TypeVar("ReadingT", GpuReading, HostReading)


class RecentReadings(Generic[ReadingT]):
    """The readings of a GPU, or of the host, in the last `NOW_S` seconds."""

    def __init__(self) -> None:
        self._readings: deque[ReadingT] = deque()

    def add(self, reading: ReadingT) -> None:
        """Add a reading."""
        self._readings.append(reading)
        while reading.at_s - self._readings[0].at_s >= NOW_S:
            self._readings.popleft()

    def now(self) -> ReadingT | None:
        """Return the newest reading, with recent means where they apply; None before the first."""
        if not self._readings:
            return None
        newest = self._readings[-1]
        means = Means()
        for reading in self._readings:
            means.add({name: reading.number(name) for name in newest.values if _is_mean(name)})
        return replace(newest, values={**newest.values, **means.values()})


def _is_mean(name: str) -> bool:
    return name not in METRICS or METRICS[name].over_time == "mean"


class Readings:
    """The readings of the GPU that is shown, and of the training processes."""

    def __init__(self) -> None:
        self._uuid: str | None = None  # of the GPU that is shown
        self.gpu = RecentReadings[GpuReading]()
        """The readings of the GPU that is shown."""
        self.host = RecentReadings[HostReading]()
        """The readings of the training processes."""
        self.memory: HostReading | None = None
        """The device memory that the training reported last."""
        self.others: OtherJobs | None = None
        """What other jobs used when that was read last."""

    def take_gpu(self, reading: GpuReading, device: Device | None) -> bool:
        """Add a reading if it is of the GPU that is shown, and return whether it is.

        That GPU is the one trained on, or the first one seen if that is unknown.
        """
        shown = device.uuid if device is not None else None
        if reading.uuid != (shown or self._uuid or reading.uuid):
            return False
        if reading.uuid != self._uuid:
            self._uuid, self.gpu = reading.uuid, RecentReadings()
        self.gpu.add(reading)
        return True

    def others_now(self, now_s: float) -> OtherJobs | None:
        """Return what other jobs use; None if that was not read lately."""
        is_recent = self.others is not None and now_s - self.others.at_s < OTHERS_S
        return self.others if is_recent else None

    def host_now(self) -> HostReading | None:
        """Return the processes' current reading, with the device memory the training reported."""
        host = self.host.now()
        if host is None or self.memory is None:
            return host or self.memory
        return replace(host, values={**host.values, **self.memory.values})
