"""How the border between two phases is recorded on one kind of device, and read back."""

import time
from typing import Protocol, TypeVar

import torch

BorderT = TypeVar("BorderT")


class Borders(Protocol[BorderT]):
    """How phase borders are recorded on one kind of device."""

    def record(self) -> BorderT:
        """Return a border after everything enqueued so far on the current stream."""

    def passed(self, border: BorderT, /) -> bool:
        """Has the device reached it? Does not wait."""

    def between_ms(self, earlier: BorderT, later: BorderT, /) -> float:
        """Return the device's time from one passed border to another, in milliseconds."""

    def tie(self) -> tuple[BorderT, float]:
        """Return a border and its `time.monotonic()`; waits for the device, once."""

    def release(self, border: BorderT, /) -> None:
        """Take back a border that is no longer needed."""


class HostBorders:
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

    def release(self, _border: float, /) -> None:
        """Keep nothing."""


class EventBorders:
    """CUDA events with timing, reused."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._free: list[torch.cuda.Event] = []

    def record(self) -> torch.cuda.Event:
        """Record an event on the current stream."""
        event = self._free.pop() if self._free else self._make()
        event.record()
        return event

    def _make(self) -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # same

    def passed(self, event: torch.cuda.Event, /) -> bool:
        """Query the event."""
        return bool(event.query())  # type: ignore[no-untyped-call]  # untyped in torch

    def between_ms(self, earlier: torch.cuda.Event, later: torch.cuda.Event, /) -> float:
        """Return the events' difference; negative where `later` came first."""
        return float(earlier.elapsed_time(later))

    def tie(self) -> tuple[torch.cuda.Event, float]:
        """Record an event on an idle device, so that its time is now."""
        torch.cuda.synchronize(self._device)  # sync: once, before the first step
        event = self.record()
        event.synchronize()  # sync: same
        return event, time.monotonic()

    def release(self, event: torch.cuda.Event, /) -> None:
        """Reuse the event."""
        self._free.append(event)
