"""When did the device finish, and where did the time of a step go: measured without waiting.

The clock is the workload's `mark`. At every phase border it takes a time stamp (CPU) or
records an event on the current stream (CUDA); events are read back some steps later, once
the device has passed them. Nothing here ever waits for the device.

On a GPU the ends of steps are chained: each is the one before plus the events' difference,
so rates are the device's own. The chain is tied to the host's clock once, before the first
step, and kept within what causality allows: a step ends after the host began to enqueue it
and before its last event was seen done.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor

from gpudash.records import Step
from workloads.workload import Phase

BorderT = TypeVar("BorderT")
Marks: TypeAlias = list[tuple[Phase, BorderT]]


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


@dataclass(frozen=True, kw_only=True)
class Tag:
    """What the loop knows about a step when it has enqueued it."""

    step: int
    segment: int
    samples: int
    loss: Tensor


@dataclass(frozen=True, kw_only=True)
class _First(Generic[BorderT]):
    """A preparing half, and what the host did to get its batch."""

    marks: Marks[BorderT]
    data_ms: float


@dataclass(frozen=True, kw_only=True)
class _Enqueued(Generic[BorderT]):
    """A step the host has enqueued and the device was not seen to finish."""

    tag: Tag
    first: _First[BorderT]
    second: Marks[BorderT]
    began_s: float
    ended_s: float
    host_ms: float
    after_break_s: float | None
    """When the first iteration after a break began, if this step is the first after one."""


def halves(marks: Marks[BorderT]) -> tuple[Marks[BorderT], Marks[BorderT]]:
    """Cut an iteration's marks into its first and its second half, each with its end.

    Serial marks copy first forward backward optimizer idle; two streams mark forward
    backward optimizer idle, then copy first idle for the next batch. Either may be empty.
    """
    first: Marks[BorderT] = []
    second: Marks[BorderT] = []
    current: Marks[BorderT] | None = None
    for phase, border in marks:
        if current and phase in ("forward", "idle"):
            current.append(("idle", border))
            current = None
        if phase in ("copy", "forward"):
            current = first if phase == "copy" else second
        if current is not None:
            current.append((phase, border))
    return first, second


class Clock(Generic[BorderT]):
    """The loop's instrument: `mark` within an iteration, `end` after it, `finished` at times."""

    def __init__(
        self, borders: Borders[BorderT], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._borders = borders
        self._now = now
        self._marks: Marks[BorderT] = []
        self._prepared: _First[BorderT] | None = None
        self._enqueued: deque[_Enqueued[BorderT]] = deque()
        # the end of the newest measured step, on the device and in the host's time
        self._reference, self._reference_s = borders.tie()
        self._reference_second_ms = 0.0
        self._broken = True
        self._after_break_s: float | None = None
        self._began_s = self._data_ended_s = self._reference_s
        self.step_ms = math.inf
        """How long the newest finished step took."""
        self.until_s = self._reference_s
        """Every step finished before this moment has been returned by `finished`."""

    @property
    def enqueued(self) -> int:
        """Steps that were not finished at the last look."""
        return len(self._enqueued)

    def begin(self) -> None:
        """Open an iteration; until its first mark the host waits for data."""
        self._began_s = self._data_ended_s = self._now()
        if self._broken:
            self._broken, self._after_break_s = False, self._began_s

    def mark(self, phase: Phase, /) -> None:
        """Begin `phase` on the current stream; `idle` ends a half."""
        if not self._marks:
            self._data_ended_s = self._now()
        self._marks.append((phase, self._borders.record()))

    def interrupt(self) -> None:
        """Declare a break: the next step's time starts with itself, not with the one before."""
        self._broken = True

    def abandon(self) -> None:
        """Forget the iteration that failed half-way and what was prepared."""
        self._marks, self._prepared = [], None
        self.interrupt()

    def end(self, tag: Tag | None) -> None:
        """Close the iteration; `tag` is None where it trained no step."""
        ended_s = self._now()
        data_ms = (self._data_ended_s - self._began_s) * 1e3
        marks, self._marks = self._marks, []
        first, second = halves(marks)
        if first:
            fetched = _First(marks=first, data_ms=data_ms)
            serial = marks[0][0] == "copy"
            trained, self._prepared = (
                (fetched, None) if serial and second else (self._prepared, fetched)
            )
        else:
            trained, self._prepared = self._prepared, None
        if tag is None or trained is None:
            return
        self._enqueued.append(
            _Enqueued(
                tag=tag,
                first=trained,
                second=second,
                began_s=self._began_s,
                ended_s=ended_s,
                host_ms=(ended_s - self._began_s) * 1e3 - data_ms,
                after_break_s=self._after_break_s,
            )
        )
        self._after_break_s = None

    def finished(self) -> list[tuple[Step, Tensor]]:
        """Return the steps finished since the last call, with their losses. Never waits."""
        now = self._now()
        done = []
        while self._enqueued and self._borders.passed(self._enqueued[0].second[-1][1]):
            done.append(self._measure(self._enqueued.popleft(), now))
        self.until_s = now
        return done

    def _measure(self, step: _Enqueued[BorderT], now: float) -> tuple[Step, Tensor]:
        first_ms, second_ms = self._phases_ms(step.first.marks), self._phases_ms(step.second)
        end = step.second[-1][1]
        since_reference_ms = self._borders.between_ms(self._reference, end)
        # an iteration closed before the last look was not finished then
        earliest = self.until_s if step.ended_s <= self.until_s else step.began_s
        finished_s = self._reference_s + since_reference_ms / 1e3
        finished_s = min(max(finished_s, earliest, self._reference_s), now)
        step_ms = since_reference_ms
        if step.after_break_s is not None:
            began_s = max(step.after_break_s, self._reference_s)
            step_ms = (finished_s - began_s) * 1e3
        overlap_ms = self._overlap_ms(step)
        device_ms = sum(first_ms.values()) + sum(second_ms.values()) - (overlap_ms or 0.0)
        record = Step(
            step=step.tag.step,
            segment=step.tag.segment,
            samples=step.tag.samples,
            finished_s=finished_s,
            step_ms=step_ms,
            data_ms=step.first.data_ms,
            host_ms=step.host_ms,
            device_ms=device_ms,
            copy_ms=first_ms.get("copy"),
            first_ms=first_ms.get("first"),
            forward_ms=second_ms.get("forward"),
            backward_ms=second_ms.get("backward"),
            optimizer_ms=second_ms.get("optimizer"),
            overlap_ms=overlap_ms,
        )
        self._release(step)
        self.step_ms = step_ms
        self._reference, self._reference_s = end, finished_s
        self._reference_second_ms = sum(second_ms.values())
        return record, step.tag.loss

    def _phases_ms(self, marks: Marks[BorderT]) -> dict[Phase, float]:
        pairs = pairwise(marks)
        return {phase: self._borders.between_ms(begin, end) for (phase, begin), (_, end) in pairs}

    def _overlap_ms(self, step: _Enqueued[BorderT]) -> float | None:
        """How long this step's first half ran beside the second half of the step before."""
        if step.first.marks[-1][1] is step.second[0][1]:
            return None  # one stream: where the first half ends, the second begins
        begin = self._borders.between_ms(self._reference, step.first.marks[0][1])
        end = self._borders.between_ms(self._reference, step.first.marks[-1][1])
        return max(0.0, min(end, 0.0) - max(begin, -self._reference_second_ms))

    def _release(self, step: _Enqueued[BorderT]) -> None:
        # serial halves share a border; the step's end stays as the next reference
        borders = {id(b): b for _, b in (*step.first.marks, *step.second)}
        del borders[id(step.second[-1][1])]
        for border in (*borders.values(), self._reference):
            self._borders.release(border)
