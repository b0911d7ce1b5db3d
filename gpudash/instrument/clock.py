"""When did the device finish, and where did the time of a step go: measured without waiting.

After every step a timestamp is recorded: a time stamp (CPU) or an event on the current stream
(CUDA). Events are read back some steps later, once the device has passed them. Nothing here
ever waits for the device.

On a GPU the ends of steps are chained: each is the one before plus the events' difference,
so rates are the device's own. The chain is tied to the host's clock once, before the first
step, and kept within what causality allows: a step ends after the host began to enqueue it
and before its last event was seen done.

Phases are measured in two iterations out of those of each 100 ms (on two streams, both halves
of one step), and are None in the others. There the clock is the workload's `mark`, which
records a timestamp at each call; else `mark` only keeps the names, without a line of Python:
between the calls of a step the interpreter's caches are cold, and everything done then is felt by
short steps. What can wait is done later, for many steps at once.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Generic, TypeAlias

import msgspec
from torch import Tensor

from gpudash.instrument.timestamps import Timestamps, TimestampT
from gpudash.protocol import Step
from workloads.training import Trained
from workloads.workload import Mark, Phase

Marks: TypeAlias = list[tuple[Phase, TimestampT]]
"""Phases and where they begin; empty where that was not recorded."""

PHASES_EVERY_S = 0.1
PHASES_IN_A_ROW = 2
"""On two streams the halves of a step lie in two iterations: both must be measured."""


class _First(msgspec.Struct, Generic[TimestampT], frozen=True, kw_only=True, gc=False):
    """A preparing half."""

    marks: Marks[TimestampT]
    ahead: bool
    """On a stream of its own, beside the training on the batch before."""


class _Break(msgspec.Struct, Generic[TimestampT], frozen=True, gc=False):
    """Where training went on after a pause or a change: the next step's time starts there."""

    at_s: float
    timestamp: TimestampT
    cpu_s: float | None


class _Iteration(msgspec.Struct, Generic[TimestampT], frozen=True, kw_only=True, gc=False):
    """One turn of the loop, as the host has enqueued it."""

    trained: Trained | None
    """None where it only prepared a batch."""
    step: int
    segment: int
    phases: list[Phase]
    timestamps: list[TimestampT]
    """Where each phase begins; empty where that was not recorded."""
    end: TimestampT | None
    """After its step, if it trained one."""
    cpu_s: float | None
    """The process's CPU time at its end; None on a GPU."""
    began_s: float
    ended_s: float
    data_ms: float
    after: _Break[TimestampT] | None
    """If this step is the first after a break."""


def halves(marks: Marks[TimestampT]) -> tuple[Marks[TimestampT], Marks[TimestampT]]:
    """Cut an iteration's marks into its first and its second half, each with its end.

    Serial marks copy first forward backward optimizer idle; two streams mark forward
    backward optimizer idle, then copy first idle for the next batch. Either may be empty.
    A step replayed as a CUDA graph marks graph instead of forward backward optimizer.
    """
    first: Marks[TimestampT] = []
    second: Marks[TimestampT] = []
    current: Marks[TimestampT] | None = None
    for phase, timestamp in marks:
        if current and phase in ("forward", "graph", "idle"):
            current.append(("idle", timestamp))
            current = None
        if phase in ("copy", "forward", "graph"):
            current = first if phase == "copy" else second
        if current is not None:
            current.append((phase, timestamp))
    return first, second


class Clock(Generic[TimestampT]):
    """The loop's instrument: `begin` before an iteration, `end` after it, `finished` at times."""

    def __init__(
        self,
        timestamps: Timestamps[TimestampT],
        now: Callable[[], float] = time.monotonic,
        phases_every_s: float = PHASES_EVERY_S,
    ) -> None:
        self._timestamps = timestamps
        self._now = now
        self._phases_every_s = phases_every_s
        self._phases_due_s = -math.inf
        self._phases_left = 0  # iterations to measure in full
        self._phases: list[Phase] = []  # of the iteration in progress
        self._recorded: list[TimestampT] = []  # and, if they are measured, where each begins
        self._iterations: deque[_Iteration[TimestampT]] = deque()
        self._prepared: _First[TimestampT] | None = None  # and not trained on so far
        self._waited_ms = 0.0  # for batches, since the step before
        # the end of the newest measured step, on the device and in the host's time
        self._reference, self._reference_s = timestamps.tie()
        self._reference_cpu_s = timestamps.cpu_s()
        self._second: Marks[TimestampT] = []  # its training half, where that was measured
        self._broken = True
        self._broke_s = self._reference_s
        self._after: _Break[TimestampT] | None = None
        self.began_s = self._reference_s
        """When the host began the newest iteration."""
        self.step_ms = math.inf
        """How long the newest finished step took; infinite until the second after a break."""
        self.spent_s = 0.0
        """Host time taken by the clock itself; looks in vain, which delay no step, aside."""
        self.until_s = self._reference_s
        """Every step finished before this moment has been returned by `finished`."""

    @property
    def enqueued(self) -> int:
        """Iterations that were not finished at the last look."""
        return len(self._iterations)

    def begin(self) -> Mark:
        """Open an iteration; return what it is to be marked with."""
        self.began_s = self._now()
        if self._broken:
            if self._after is not None:
                self._timestamps.release(self._after.timestamp)
            after = _Break(self.began_s, self._timestamps.record(), self._timestamps.cpu_s())
            self._broken, self._after = False, after
        if self.began_s >= self._phases_due_s:
            self._phases_due_s = self.began_s + self._phases_every_s
            self._phases_left = PHASES_IN_A_ROW
        self._phases, self._recorded = [], []
        if not self._phases_left:
            return self._phases.append
        self._phases_left -= 1
        return self._mark

    def _mark(self, phase: Phase, /) -> None:
        """Begin `phase` on the current stream; `idle` ends a half."""
        called_s = perf_counter()
        self._phases.append(phase)
        self._recorded.append(self._timestamps.record())
        self.spent_s += perf_counter() - called_s

    def interrupt(self) -> None:
        """Declare a break: the next step's time starts with itself, not with the one before."""
        self._broken, self._broke_s, self.step_ms = True, self._now(), math.inf

    def end(self, trained: Trained | None, step: int, segment: int, data_s: float = 0.0) -> None:
        """Close the iteration, in which the host waited `data_s` for its batch.

        `trained` is None where it trained no step; else it was `step`, under `segment`.
        """
        ended_s = self._now()
        self._iterations.append(
            _Iteration(
                trained=trained,
                step=step,
                segment=segment,
                phases=self._phases,
                timestamps=self._recorded,
                end=self._timestamps.record() if trained else None,
                cpu_s=self._timestamps.cpu_s(),
                began_s=self.began_s,
                ended_s=ended_s,
                data_ms=data_s * 1e3,
                after=self._after,
            )
        )
        if trained:
            self._after = None
        self.spent_s += self._now() - ended_s

    def finished(self) -> list[tuple[Step, Tensor]]:
        """Return the steps finished since the last call, with their losses. Never waits."""
        called_s, enqueued = perf_counter(), self.enqueued
        now = self._now()
        done = []
        while self._iterations:
            iteration = self._iterations[0]
            if iteration.end is not None and not self._timestamps.passed(iteration.end):
                break
            self._iterations.popleft()
            first, second = self._pair(iteration)
            self._waited_ms += iteration.data_ms
            if iteration.trained is not None:
                assert first is not None, "a workload marks `copy` in its first half"
                done.append((self._measure(iteration, first, second, now), iteration.trained.loss))
        self.until_s = now
        if self.enqueued < enqueued:  # else the host is waiting for the device
            self.spent_s += perf_counter() - called_s
        return done

    def _pair(
        self, iteration: _Iteration[TimestampT]
    ) -> tuple[_First[TimestampT] | None, Marks[TimestampT]]:
        """Return both halves of the iteration's step, the first of which may lie in the one before.

        Keeps the half that this iteration has prepared for the next one.
        """
        phases = iteration.phases
        serial = iteration.trained is not None and phases[:1] == ["copy"]
        first: Marks[TimestampT] = []
        second: Marks[TimestampT] = []
        if iteration.timestamps:
            first, second = halves(list(zip(phases, iteration.timestamps, strict=True)))
        fetched = None
        if "copy" in phases:
            fetched = _First(marks=first, ahead=not serial)
        if serial:
            return fetched, second
        prepared, self._prepared = self._prepared, fetched
        return prepared, second

    def _measure(
        self,
        iteration: _Iteration[TimestampT],
        first: _First[TimestampT],
        second: Marks[TimestampT],
        now: float,
    ) -> Step:
        trained, end, after = iteration.trained, iteration.end, iteration.after
        assert trained is not None
        assert end is not None
        if after is None:
            began_s, step_ms = self._reference_s, self._timestamps.between_ms(self._reference, end)
            began_cpu_s = self._reference_cpu_s
        else:  # a device still at work then reaches the timestamp with its last step before
            began_s = max(after.at_s, self._reference_s)
            step_ms = self._timestamps.between_ms(after.timestamp, end)
            began_cpu_s = after.cpu_s
            self._timestamps.release(after.timestamp)
        cpu_ms = None
        if iteration.cpu_s is not None and began_cpu_s is not None:
            cpu_ms = (iteration.cpu_s - began_cpu_s) * 1e3
        # an iteration closed before the last look was not finished then
        earliest = self.until_s if iteration.ended_s <= self.until_s else iteration.began_s
        finished_s = min(max(began_s + step_ms / 1e3, earliest, self._reference_s), now)
        record = Step(
            step=iteration.step,
            segment=iteration.segment,
            samples=trained.samples,
            finished_s=finished_s,
            step_ms=step_ms,
            data_ms=self._waited_ms,
            host_ms=(iteration.ended_s - iteration.began_s) * 1e3 - iteration.data_ms,
            cpu_ms=cpu_ms,
            **(self._within(first, second) if first.marks or second else {}),
        )
        self._waited_ms = 0.0
        self._release(first.marks, second)
        if after is None and iteration.began_s >= self._broke_s:
            self.step_ms = step_ms
        self._reference, self._reference_s = end, finished_s
        self._reference_cpu_s = iteration.cpu_s
        return record

    def _within(
        self, first: _First[TimestampT], second: Marks[TimestampT]
    ) -> dict[str, float | None]:
        """Return the fields of `Step` that come from timestamps within it."""
        prepare_ms, second_ms = self._phases_ms(first.marks), self._phases_ms(second)
        overlap_ms = self._overlap_ms(first)
        device_ms = None
        if prepare_ms and second_ms and not (first.ahead and overlap_ms is None):
            device_ms = sum(prepare_ms.values()) + sum(second_ms.values()) - (overlap_ms or 0.0)
        return {
            "device_ms": device_ms,
            "copy_ms": prepare_ms.get("copy"),
            "prepare_ms": prepare_ms.get("prepare"),
            "forward_ms": second_ms.get("forward"),
            "backward_ms": second_ms.get("backward"),
            "optimizer_ms": second_ms.get("optimizer"),
            "graph_ms": second_ms.get("graph"),
            "overlap_ms": overlap_ms,
        }

    def _phases_ms(self, marks: Marks[TimestampT]) -> dict[Phase, float]:
        """Return what each phase took; empty where its timestamps were not recorded."""
        between_ms = self._timestamps.between_ms
        return {phase: between_ms(begin, end) for (phase, begin), (_, end) in pairwise(marks)}

    def _overlap_ms(self, first: _First[TimestampT]) -> float | None:
        """How long a first half ran beside the second half of the step before."""
        if not first.ahead or not first.marks or not self._second:
            return None
        ended = self._second[-1][1]
        lasted_ms = self._timestamps.between_ms(self._second[0][1], ended)
        begin = self._timestamps.between_ms(ended, first.marks[0][1])
        end = self._timestamps.between_ms(ended, first.marks[-1][1])
        return max(0.0, min(end, 0.0) - max(begin, -lasted_ms))

    def _release(self, first: Marks[TimestampT], second: Marks[TimestampT]) -> None:
        """Give back what no later step is measured from, and keep the training half."""
        self._timestamps.release(self._reference)
        if not (first or second or self._second):
            return
        kept = {id(timestamp) for _, timestamp in second}
        # serial halves share a timestamp
        timestamps = {id(timestamp): timestamp for _, timestamp in (*self._second, *first)}
        for timestamp_id, timestamp in timestamps.items():
            if timestamp_id not in kept:
                self._timestamps.release(timestamp)
        self._second = second
