"""When did the device finish, and where did the time of a step go: measured without waiting.

The clock is the workload's `mark`. At every phase border it takes a time stamp (CPU) or
records an event on the current stream (CUDA); events are read back some steps later, once
the device has passed them. Nothing here ever waits for the device.

On a GPU the ends of steps are chained: each is the one before plus the events' difference,
so rates are the device's own. The chain is tied to the host's clock once, before the first
step, and kept within what causality allows: a step ends after the host began to enqueue it
and before its last event was seen done.

The end of every step is recorded. The other borders cost the device about 2 µs each and the
host as much, which short steps would feel: phases are measured in two iterations out of those of
each 100 ms (on two streams, both halves of one step), and are None in the others.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from time import perf_counter
from typing import Generic, TypeAlias

import msgspec
from torch import Tensor

from gpudash.records import Step
from gpudash.worker.borders import Borders, BorderT
from workloads.workload import Phase

Marks: TypeAlias = list[tuple[Phase, BorderT]]
"""Phases and where they begin; empty where that was not recorded."""

LAST_PHASES = ("optimizer", "graph")
"""What a step ends with."""
PHASES_EVERY_S = 0.1
PHASES_IN_A_ROW = 2
"""On two streams the halves of a step lie in two iterations: both must be measured."""


class Tag(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the loop knows about a step when it has enqueued it."""

    step: int
    segment: int
    samples: int
    loss: Tensor


class _First(msgspec.Struct, Generic[BorderT], frozen=True, kw_only=True, gc=False):
    """A preparing half, and what the host did to get its batch."""

    marks: Marks[BorderT]
    data_ms: float


class _Enqueued(msgspec.Struct, Generic[BorderT], frozen=True, kw_only=True, gc=False):
    """A step the host has enqueued and the device was not seen to finish."""

    tag: Tag
    first: _First[BorderT]
    second: Marks[BorderT]
    end: BorderT
    serial: bool
    """Both halves on one stream."""
    began_s: float
    ended_s: float
    host_ms: float
    after_break_s: float | None
    """When the first iteration after a break began, if this step is the first after one."""


def halves(marks: Marks[BorderT]) -> tuple[Marks[BorderT], Marks[BorderT]]:
    """Cut an iteration's marks into its first and its second half, each with its end.

    Serial marks copy first forward backward optimizer idle; two streams mark forward
    backward optimizer idle, then copy first idle for the next batch. Either may be empty.
    A step replayed as a CUDA graph marks graph instead of forward backward optimizer.
    """
    first: Marks[BorderT] = []
    second: Marks[BorderT] = []
    current: Marks[BorderT] | None = None
    for phase, border in marks:
        if current and phase in ("forward", "graph", "idle"):
            current.append(("idle", border))
            current = None
        if phase in ("copy", "forward", "graph"):
            current = first if phase == "copy" else second
        if current is not None:
            current.append((phase, border))
    return first, second


@lru_cache(maxsize=64)
def shape_of(phases: tuple[Phase, ...]) -> tuple[bool, bool]:
    """Tell whether an iteration with these phases prepared a batch, and whether serially."""
    first, second = halves([(phase, None) for phase in phases])
    return bool(first), bool(first and second) and phases[0] == "copy"


class Clock(Generic[BorderT]):
    """The loop's instrument: `mark` within an iteration, `end` after it, `finished` at times."""

    def __init__(
        self,
        borders: Borders[BorderT],
        now: Callable[[], float] = time.monotonic,
        phases_every_s: float = PHASES_EVERY_S,
    ) -> None:
        self._borders = borders
        self._now = now
        self._phases_every_s = phases_every_s
        self._phases_due_s = -math.inf
        self._phases_left = 0  # iterations to measure in full
        self._phases: list[Phase] = []  # of the iteration in progress
        self._recorded: list[BorderT] = []  # and, if they are measured, where each begins
        self._prepared: _First[BorderT] | None = None
        self._enqueued: deque[_Enqueued[BorderT]] = deque()
        # the end of the newest measured step, on the device and in the host's time
        self._reference, self._reference_s = borders.tie()
        self._reference_second_ms: float | None = 0.0
        self._end = self._reference  # of the iteration's second half
        self._broken = True
        self._after_break_s: float | None = None
        self._began_s = self._data_ended_s = self._reference_s
        self.step_ms = math.inf
        """How long the newest finished step took."""
        self.spent_s = 0.0
        """Host time taken by the clock itself."""
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
        if self._began_s >= self._phases_due_s:
            self._phases_due_s = self._began_s + self._phases_every_s
            self._phases_left = PHASES_IN_A_ROW

    def mark(self, phase: Phase, /) -> None:
        """Begin `phase` on the current stream; `idle` ends a half."""
        phases = self._phases
        if not phases:
            self._data_ended_s = self._now()
        phases.append(phase)
        ends_step = phase == "idle" and phases[-2] in LAST_PHASES
        if not ends_step and not self._phases_left:
            return
        called_s = perf_counter()
        border = self._borders.record()
        if self._phases_left:
            self._recorded.append(border)
        if ends_step:
            self._end = border
        self.spent_s += perf_counter() - called_s

    def interrupt(self) -> None:
        """Declare a break: the next step's time starts with itself, not with the one before."""
        self._broken = True

    def abandon(self) -> None:
        """Forget the iteration that failed half-way and what was prepared."""
        self._phases, self._recorded, self._prepared = [], [], None
        self.interrupt()

    def end(self, tag: Tag | None) -> None:
        """Close the iteration; `tag` is None where it trained no step."""
        called_s = perf_counter()
        ended_s = self._now()
        data_ms = (self._data_ended_s - self._began_s) * 1e3
        has_first, serial = shape_of(tuple(self._phases))
        first: Marks[BorderT] = []
        second: Marks[BorderT] = []
        if self._recorded:
            first, second = halves(list(zip(self._phases, self._recorded, strict=True)))
            self._recorded = []
        self._phases = []
        self._phases_left = max(0, self._phases_left - 1)
        fetched = _First(marks=first, data_ms=data_ms) if has_first else None
        trained, self._prepared = (fetched, None) if serial else (self._prepared, fetched)
        if tag is not None and trained is not None:
            self._enqueued.append(
                _Enqueued(
                    tag=tag,
                    first=trained,
                    second=second,
                    end=self._end,
                    serial=serial,
                    began_s=self._began_s,
                    ended_s=ended_s,
                    host_ms=(ended_s - self._began_s) * 1e3 - data_ms,
                    after_break_s=self._after_break_s,
                )
            )
            self._after_break_s = None
        self.spent_s += perf_counter() - called_s

    def finished(self) -> list[tuple[Step, Tensor]]:
        """Return the steps finished since the last call, with their losses. Never waits."""
        called_s = perf_counter()
        now = self._now()
        done = []
        while self._enqueued and self._borders.passed(self._enqueued[0].end):
            done.append(self._measure(self._enqueued.popleft(), now))
        self.until_s = now
        self.spent_s += perf_counter() - called_s
        return done

    def _measure(self, step: _Enqueued[BorderT], now: float) -> tuple[Step, Tensor]:
        first_ms, second_ms = self._phases_ms(step.first.marks), self._phases_ms(step.second)
        since_reference_ms = self._borders.between_ms(self._reference, step.end)
        # an iteration closed before the last look was not finished then
        earliest = self.until_s if step.ended_s <= self.until_s else step.began_s
        finished_s = self._reference_s + since_reference_ms / 1e3
        finished_s = min(max(finished_s, earliest, self._reference_s), now)
        step_ms = since_reference_ms
        if step.after_break_s is not None:
            began_s = max(step.after_break_s, self._reference_s)
            step_ms = (finished_s - began_s) * 1e3
        second_half_ms = sum(second_ms.values()) if second_ms else None
        overlap_ms = self._overlap_ms(step)
        device_ms = None
        if first_ms and second_half_ms is not None and (step.serial or overlap_ms is not None):
            device_ms = sum(first_ms.values()) + second_half_ms - (overlap_ms or 0.0)
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
            graph_ms=second_ms.get("graph"),
            overlap_ms=overlap_ms,
        )
        self._release(step)
        self.step_ms = step_ms
        self._reference, self._reference_s = step.end, finished_s
        self._reference_second_ms = second_half_ms
        return record, step.tag.loss

    def _phases_ms(self, marks: Marks[BorderT]) -> dict[Phase, float]:
        """Return what each phase took; empty where its borders were not recorded."""
        between_ms = self._borders.between_ms
        return {phase: between_ms(begin, end) for (phase, begin), (_, end) in pairwise(marks)}

    def _overlap_ms(self, step: _Enqueued[BorderT]) -> float | None:
        """How long this step's first half ran beside the second half of the step before."""
        if step.serial or not step.first.marks or self._reference_second_ms is None:
            return None
        begin = self._borders.between_ms(self._reference, step.first.marks[0][1])
        end = self._borders.between_ms(self._reference, step.first.marks[-1][1])
        return max(0.0, min(end, 0.0) - max(begin, -self._reference_second_ms))

    def _release(self, step: _Enqueued[BorderT]) -> None:
        self._borders.release(self._reference)  # the step's end is the next one
        if step.first.marks or step.second:
            # serial halves share a border
            borders = {id(border): border for _, border in (*step.first.marks, *step.second)}
            borders.pop(id(step.end), None)
            for border in borders.values():
                self._borders.release(border)
