"""What is read of a run's GPU and of its processes now."""

from collections import deque
from typing import Generic, TypeVar

from msgspec.structs import replace

from gpudash.metrics import METRICS
from gpudash.protocol import Device, GpuReading, HostReading
from gpudash.statistics import Means
from gpudash.views.throughput import NOW_S

ReadingT = TypeVar("ReadingT", GpuReading, HostReading)


class RecentReadings(Generic[ReadingT]):
    """The last readings of a GPU, or of the host."""

    def __init__(self) -> None:
        self._readings: deque[ReadingT] = deque()

    def add(self, reading: ReadingT) -> None:
        """Take a reading."""
        self._readings.append(reading)
        while reading.at_s - self._readings[0].at_s >= NOW_S:
            self._readings.popleft()

    def now(self) -> ReadingT | None:
        """Return the newest with means in it, where a value over time is one; None before any."""
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
    """Takes the readings of all GPUs, and of the training processes."""

    def __init__(self) -> None:
        self._uuid: str | None = None  # of the GPU that is shown
        self._gpu = RecentReadings[GpuReading]()
        self._host = RecentReadings[HostReading]()
        self.memory: HostReading | None = None
        """The device memory that the training has told of last."""

    def take_gpu(self, reading: GpuReading, device: Device | None) -> bool:
        """Take a reading of the GPU that is shown; tell whether it is of that one.

        It is the one trained on, or the first seen where that is not known.
        """
        shown = device.uuid if device is not None else None
        if reading.uuid != (shown or self._uuid or reading.uuid):
            return False
        if reading.uuid != self._uuid:
            self._uuid, self._gpu = reading.uuid, RecentReadings()
        self._gpu.add(reading)
        return True

    def take_host(self, reading: HostReading) -> None:
        """Take a reading of the training processes."""
        self._host.add(reading)

    def gpu(self) -> GpuReading | None:
        """Return what the GPU does now."""
        return self._gpu.now()

    def host(self) -> HostReading | None:
        """Return the training processes' newest reading, with the device memory that one told."""
        host = self._host.now()
        if host is None or self.memory is None:
            return host or self.memory
        return replace(host, values={**host.values, **self.memory.values})
