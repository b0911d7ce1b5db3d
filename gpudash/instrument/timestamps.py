"""Records timestamps on one kind of device, and reads them back."""

import time
from typing import Protocol, TypeVar

import torch

TimestampT = TypeVar("TimestampT")


class Timestamps(Protocol[TimestampT]):
    """Timestamps of one kind of device, on a GPU of the current stream; `passed` never waits."""

    def record(self) -> TimestampT: ...

    def passed(self, timestamp: TimestampT, /) -> bool: ...

    def between_ms(self, earlier: TimestampT, later: TimestampT, /) -> float: ...

    def tie(self) -> tuple[TimestampT, float]:
        """Pair a timestamp with its `time.monotonic()`; it waits for the device."""

    def release(self, *timestamps: TimestampT) -> None: ...

    def cpu_s(self) -> float | None:
        """Sum all threads of this process; None if the CPU is not the device."""


class HostTimestamps:
    """Timestamps on a CPU, where work is finished when its call returns."""

    def record(self) -> float:
        return time.monotonic()

    def passed(self, _border: float, /) -> bool:
        return True

    def between_ms(self, earlier: float, later: float, /) -> float:
        return (later - earlier) * 1e3

    def tie(self) -> tuple[float, float]:
        now = time.monotonic()
        return now, now

    def release(self, *_timestamps: float) -> None:
        """Do nothing: a float need not be reused."""

    def cpu_s(self) -> float:
        return time.process_time()


class EventTimestamps:
    """`torch.Event`s with timing: `torch.cuda.Event` takes 32 µs, not 7, to look its stream up."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: list[torch.Event] = []

    def record(self) -> torch.Event:
        event = self._free.pop() if self._free else torch.Event(self._device, enable_timing=True)
        event.record()
        return event

    def passed(self, event: torch.Event, /) -> bool:
        return event.query()

    def between_ms(self, earlier: torch.Event, later: torch.Event, /) -> float:
        """Negative if `later` came first."""
        return earlier.elapsed_time(later)

    def tie(self) -> tuple[torch.Event, float]:
        """Wait until the device is idle: then the event's time is now."""
        torch.cuda.synchronize(self._device)  # sync: once, before the first step
        event = self.record()
        event.synchronize()  # sync: as above
        return event, time.monotonic()

    def release(self, *events: torch.Event) -> None:
        self._free += events

    def cpu_s(self) -> None:
        """None: the CPU is not the device."""
