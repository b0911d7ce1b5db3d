"""How the timestamp between two phases is recorded on one kind of device, and read back."""

import time
from typing import Protocol, TypeVar

import torch

TimestampT = TypeVar("TimestampT")


class Timestamps(Protocol[TimestampT]):
    """How phase timestamps are recorded on one kind of device."""

    def record(self) -> TimestampT:
        """Return a timestamp after everything enqueued so far on the current stream."""

    def passed(self, timestamp: TimestampT, /) -> bool:
        """Has the device reached it? Does not wait."""

    def between_ms(self, earlier: TimestampT, later: TimestampT, /) -> float:
        """Return the device's time from one passed timestamp to another, in milliseconds."""

    def tie(self) -> tuple[TimestampT, float]:
        """Return a timestamp and its `time.monotonic()`; waits for the device, once."""

    def release(self, *timestamps: TimestampT) -> None:
        """Take back timestamps that are no longer needed."""

    def cpu_s(self) -> float | None:
        """Return the CPU time of this process, where it does the device's work; else None."""


class HostTimestamps:
    """Time stamps: on a CPU, work is finished when the call returns."""

    def record(self) -> float:
        """Return `time.monotonic()`."""
        return time.monotonic()

    def passed(self, _border: float, /) -> bool:
        """Return True: the host is the device."""
        return True

    def between_ms(self, earlier: float, later: float, /) -> float:
        """Return the difference."""
        return (later - earlier) * 1e3

    def tie(self) -> tuple[float, float]:
        """Return the same moment twice."""
        now = time.monotonic()
        return now, now

    def release(self, *_timestamps: float) -> None:
        """Keep nothing."""

    def cpu_s(self) -> float:
        """Return it, of all threads."""
        return time.process_time()


class EventTimestamps:
    """CUDA events with timing, reused.

    `torch.Event`, as `torch.cuda.Event` looks the current stream up in Python: 32 µs instead of
    7 for a timestamp in the middle of a step (benchmarks/RESULTS.md).
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: list[torch.Event] = []

    def record(self) -> torch.Event:
        """Record an event on the current stream."""
        event = self._free.pop() if self._free else torch.Event(self._device, enable_timing=True)
        event.record()
        return event

    def passed(self, event: torch.Event, /) -> bool:
        """Query the event."""
        return event.query()

    def between_ms(self, earlier: torch.Event, later: torch.Event, /) -> float:
        """Return the events' difference; negative where `later` came first."""
        return earlier.elapsed_time(later)

    def tie(self) -> tuple[torch.Event, float]:
        """Record an event on an idle device, so that its time is now."""
        torch.cuda.synchronize(self._device)  # sync: once, before the first step
        event = self.record()
        event.synchronize()  # sync: same
        return event, time.monotonic()

    def release(self, *events: torch.Event) -> None:
        """Reuse the events."""
        self._free += events

    def cpu_s(self) -> None:
        """Return None: the device is another one."""
