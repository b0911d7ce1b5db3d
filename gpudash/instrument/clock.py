"""Measures when each step finished on the device, and how long its phases took, without waiting.

A timestamp is recorded after every step: host time on a CPU, an event on the current stream on a
GPU. There the ends of steps are chained: each is the one before plus the time between their events.
The chain is tied to the host's clock once, and kept within causality: a step ends after the host
began to enqueue it, and before its last event was seen as done.

A phase is of one half: preparing a batch, or training on it. An iteration that begins with
preparing trains on what it prepares. Any other trains on what the iteration before has prepared.

Phases are measured in two iterations of each 100 ms on average, which on two streams hold both
halves of one step. In the others `mark` only appends the name, without a line of Python: between
the calls of a step the interpreter's caches are cold, and short steps feel any work there.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from time import perf_counter
from typing import Generic, TypeAlias

from torch import Tensor

from ..protocol.training import Phase
from .collectives import CollectiveTimes, collective_times
from .fair_sample import FairSample
from .host_time import HostTime
from .look_cost import LookCost
from .timestamps import Timestamps, TimestampT
from .wire import FinishedStep, UntimedSteps

Mark: TypeAlias = Callable[[str], None]
"""Takes the name of the phase that begins on the current stream."""
Spans: TypeAlias = list[tuple[str, TimestampT, TimestampT]]
"""The phases of a half, each with its begin and its end."""
Borders: TypeAlias = Sequence[Sequence[TimestampT]] | None
"""For each call of collectives the begin of the first, and the end of each: they follow each other.
None if not all calls of the iteration could be timed."""

PHASES_EVERY_S = 0.1
PHASES_IN_A_ROW = 2
"""On two streams the halves of a step are in two iterations, and both must be measured."""
COLLECTIVES_EVERY_S = 0.5
"""Seconds between two iterations whose collectives are timed: they are reported no more often."""
WAIT = "communication"
"""The phases in which the computation may wait for collectives."""
LEARNS = ("backward", WAIT)
"""The phases of a backward pass."""
NOTHING: Mapping[str, float] = {}

# not frozen: that takes a microsecond a step; nobody changes one


@dataclass(slots=True)
class _Break(Generic[TimestampT]):
    """Where training went on after a pause or a change. The time of the next step starts there."""

    at_s: float
    timestamp: TimestampT
    cpu_s: float | None


@dataclass(slots=True, kw_only=True)
class _Iteration(Generic[TimestampT]):
    """One iteration of the loop, as the host enqueued it."""

    step: int | None
    """None if it only prepared a batch."""
    segment: int
    count: int
    """Number of steps timed together, of which `step` is the last."""
    samples: int | None
    tokens: int | None
    loss: Tensor | None
    names: list[str]
    """Names of its marks."""
    timestamps: list[TimestampT]
    """Timestamps of its marks; empty if not recorded."""
    end: TimestampT | None
    """After its step; None if it trained none."""
    cpu_s: float | None
    """CPU time of the process at its end; None on a GPU."""
    began_s: float
    ended_s: float
    data_s: float
    after: _Break[TimestampT] | None
    """The break before this step, if there was one."""
    collectives: Borders[TimestampT]
    """Empty if none were timed."""
    values: Mapping[str, float]
    """What was measured beside the clock, of one step."""


@dataclass(slots=True, kw_only=True)
class _Halves(Generic[TimestampT]):
    """The halves of one step, as far as recorded."""

    prepare: Spans[TimestampT]
    train: Spans[TimestampT]
    ahead: bool
    """The batch was prepared in the iteration before, maybe while the step before trained."""


@dataclass(slots=True, kw_only=True)
class _Split(Generic[TimestampT]):
    """Where the iteration in progress may have ended, and its marks up to there."""

    end: TimestampT
    cpu_s: float | None
    began_s: float
    ended_s: float
    names: list[str]
    timestamps: list[TimestampT]
    measured: bool
    times_collectives: bool


class Clock(Generic[TimestampT]):
    """Times steps: `begin` before an iteration, `end` after it, and `finished` now and then."""

    def __init__(
        self,
        timestamps: Timestamps[TimestampT],
        phases: Iterable[Phase],
        now: Callable[[], float] = time.monotonic,
        phases_every_s: float = PHASES_EVERY_S,
    ) -> None:
        self._timestamps = timestamps
        self._lanes = {phase.name: phase.lane for phase in phases}
        self._now = now
        self._phases_left = 0  # iterations whose phases are still to be measured
        self._names: list[str] = []  # of the marks of the iteration in progress
        self._recorded: list[TimestampT] = []  # timestamps of these marks, if measured
        self._measured = False  # this iteration's phases are measured
        self._learns_since_s: float | None = None  # wall less CPU time, in a backward pass
        self._split: _Split[TimestampT] | None = None
        self._iterations: deque[_Iteration[TimestampT] | UntimedSteps] = deque()
        self._first: list[tuple[FinishedStep, Tensor | None]] = []  # that began before this clock
        self._untimed: list[UntimedSteps] = []  # finished
        self._prepared: Spans[TimestampT] = []  # spans not trained on yet
        self._waited_ms = 0.0  # for batches, since the step before
        # the end of the newest measured step, in device time and in host time
        self._reference, self._reference_s = timestamps.tie()
        self.sample = FairSample(phases_every_s)
        """Which steps' phases are measured."""
        self._reference_cpu_s = timestamps.cpu_s()
        self._held = [self._reference]  # timestamps that the next step may need
        self._trained: Spans[TimestampT] = []  # its training half, if that was measured
        self._collectives_every_s = COLLECTIVES_EVERY_S
        self._collectives_due_s = -math.inf
        self.times_collectives = False
        """Whether to record the borders of this iteration's collectives."""
        self.collective_times: CollectiveTimes | None = None
        """Of the newest step of its segment whose collectives were timed; None if not known."""
        self._collectives_of = 0  # the segment of these
        self._is_broken = True
        self._is_begun = False  # an iteration, and it has not ended
        self._break_s = self._reference_s
        self._after: _Break[TimestampT] | None = None
        self.at_marks: Mark | None = None
        """What is called at each mark besides, from the next iteration on."""
        self.at_renames: Mark | None = None
        """What is called with each new name of the phase in progress."""
        self.segment = 0
        """The segment of steps that end from now on."""
        self.began_s = self._reference_s
        """When the host began the newest iteration."""
        self.step_ms = math.inf
        """Duration of the newest finished step; infinite until the second one after a break."""
        self.spent_s = 0.0
        """Seconds of host time that the clock itself took, without looks that found nothing."""
        self._host_of = 0  # the segment of what follows
        self.host = HostTime()
        """Who has the time of the thread that trains."""
        self.look = LookCost()
        """Of a step that is measured in full."""
        self.until_s = self._reference_s
        """All steps that finished before this moment have been returned by `finished`."""

    @property
    def phases(self) -> Iterable[str]:
        return self._lanes.keys()

    @property
    def enqueued(self) -> int:
        return len(self._iterations)

    def begin(self) -> Mark:
        if self._is_broken or not self._is_begun:
            self.began_s, self._is_begun = self._now(), True
        if self._is_broken:
            if self._after is not None:
                self._timestamps.release(self._after.timestamp)
            after = _Break(self.began_s, self._timestamps.record(), self._timestamps.cpu_s())
            self._is_broken, self._after = False, after
            if self.segment == self._host_of:
                self.host.go_on()
            else:
                self.host.restart()
                self._host_of = self.segment
        if self._split is not None:  # left by a step that failed
            self._timestamps.release(self._split.end)
            self._split = None
            self.host.join()
        self._sample_step()
        self._names, self._recorded, self._learns_since_s = [], [], None
        self._measured = self._phases_left > 0
        self._decide_on_collectives()
        self._phases_left -= self._measured
        return self._marker()

    def _sample_step(self) -> None:
        if self.sample.take(self.began_s):
            self._phases_left = PHASES_IN_A_ROW

    def split(self) -> Mark:
        """Note that the step may have ended here, as only what follows shows."""
        now = self._now()
        self._split = _Split(
            end=self._timestamps.record(),
            cpu_s=self._timestamps.cpu_s(),
            began_s=self.began_s,
            ended_s=now,
            names=self._names,
            timestamps=self._recorded,
            measured=self._measured,
            times_collectives=self.times_collectives,
        )
        self.host.split(now - self.began_s)
        self.began_s, self._names, self._recorded = now, [], []
        self._measured = self._measured or self.sample.takes(now, ahead=1)
        self._decide_on_collectives()
        self.spent_s += self._now() - now
        return self._marker()

    def join(self) -> Mark:
        split, self._split = self._split, None
        assert split is not None
        self.host.join()
        self._timestamps.release(split.end)
        self.began_s = split.began_s
        self._names[:0] = split.names
        self.times_collectives = split.times_collectives
        if not split.measured:
            self._drop_recorded()
        else:
            self._recorded[:0] = split.timestamps
        return self._marker()

    def end_at_split(
        self,
        step: int,
        samples: int | None,
        loss: Tensor | None,
        data_s: float,
        tokens: int | None = None,
        count: int = 1,
        collectives: Borders[TimestampT] = (),
        values: Mapping[str, float] = NOTHING,
    ) -> Mark:
        """End the iteration where it was split; later marks belong to the next one."""
        called_s = self._now()
        split, self._split = self._split, None
        assert split is not None
        self._iterations.append(
            _Iteration(
                step=step,
                segment=self.segment,
                count=count,
                samples=samples,
                tokens=tokens,
                loss=loss,
                names=split.names,
                timestamps=split.timestamps,
                end=split.end,
                cpu_s=split.cpu_s,
                began_s=split.began_s,
                ended_s=split.ended_s,
                data_s=data_s,
                after=self._after,
                collectives=self._timed(collectives) if split.times_collectives else (),
                values=values,
            )
        )
        self._after = None
        self.host.iterated(
            split.ended_s - split.began_s, data_s, count, is_seen=_is_seen(count, split.timestamps)
        )
        self.sample.ended(step)
        self._sample_step()
        if not self._phases_left:
            self._drop_recorded()
        elif self._measured:
            self._phases_left -= 1
        self.spent_s += self._now() - called_s
        return self._marker()

    def _drop_recorded(self) -> None:
        self._timestamps.release(*self._recorded)
        self._recorded, self._measured, self.times_collectives = [], False, False

    def _decide_on_collectives(self) -> None:
        self.times_collectives = self._measured and self.began_s >= self._collectives_due_s

    def _timed(self, collectives: Borders[TimestampT]) -> Borders[TimestampT]:
        if collectives is None or collectives:
            self._collectives_due_s = self.began_s + self._collectives_every_s
        return collectives

    def _marker(self) -> Mark:
        mark, then = self._mark if self._measured else self._names.append, self.at_marks
        if then is None:
            return mark

        def marked(name: str) -> None:
            mark(name)
            then(name)

        return marked

    def _mark(self, name: str, /) -> None:
        called_s = perf_counter()
        # on a CPU this thread is autograd's, too
        elsewhere = LEARNS if self._reference_cpu_s is None else (WAIT,)
        if self._learns_since_s is not None:
            self.host.elsewhere(called_s - time.thread_time() - self._learns_since_s)
        self._learns_since_s = called_s - time.thread_time() if name in elsewhere else None
        self._names.append(name)
        self._recorded.append(self._timestamps.record())
        self.spent_s += perf_counter() - called_s

    def timestamp(self) -> TimestampT:
        called_s = perf_counter()
        timestamp = self._timestamps.record()
        self.spent_s += perf_counter() - called_s
        return timestamp

    def rename(self, name: str) -> None:
        """Rename the phase in progress, where only its end shows what it was."""
        names = self._names
        if names[-2:-1] == [name]:
            names.pop()
            if self._recorded:
                self._timestamps.release(self._recorded.pop())
        elif names:
            names[-1] = name
        if self.at_renames is not None:
            self.at_renames(name)

    def interrupt(self) -> None:
        """Have the next step's time start at its own begin."""
        self._is_broken, self._break_s, self.step_ms = True, self._now(), math.inf
        self.look.interrupt()
        self.host.break_off()

    def end(
        self,
        step: int | None,
        samples: int | None = None,
        loss: Tensor | None = None,
        data_s: float = 0.0,
        tokens: int | None = None,
        count: int = 1,
        collectives: Borders[TimestampT] = (),
        values: Mapping[str, float] = NOTHING,
    ) -> None:
        """End the iteration, in which the host waited `data_s` for its batch.

        `step` is None if the iteration only prepared a batch. If `count` steps were timed together,
        `step` is the last of them, and they get equal parts of the time.
        """
        ended_s, self._is_begun = self._now(), False
        self._iterations.append(
            _Iteration(
                step=step,
                segment=self.segment,
                count=count,
                samples=samples,
                tokens=tokens,
                loss=loss,
                names=self._names,
                timestamps=self._recorded,
                end=None if step is None else self._timestamps.record(),
                cpu_s=self._timestamps.cpu_s(),
                began_s=self.began_s,
                ended_s=ended_s,
                data_s=data_s,
                after=self._after,
                collectives=self._timed(collectives) if self.times_collectives else (),
                values=values,
            )
        )
        if step is not None:
            self._after = None
            self.sample.ended(step, count)
        self.host.iterated(
            ended_s - self.began_s, data_s, count, is_seen=_is_seen(count, self._recorded)
        )
        self.spent_s += self._now() - ended_s

    def end_first(
        self,
        began_s: float,
        samples: int | None,
        tokens: int | None,
        loss: Tensor | None,
        data_s: float,
    ) -> None:
        """End the first step, which began at `began_s` of the host, before there was this clock."""
        step_ms, waits = (self._reference_s - began_s) * 1e3, {"data_ms": data_s * 1e3}
        step = FinishedStep(1, self.segment, self._reference_s, step_ms, waits, 1, samples, tokens)
        self._first.append((step, loss))

    def count(self, step: int, count: int, samples: int | None, tokens: int | None) -> None:
        """Count steps that were not measured, up to `step`, which the host has just enqueued."""
        self.sample.ended(step)
        untimed = UntimedSteps(step, self.segment, self._now(), count, samples, tokens)
        self._iterations.append(untimed)

    def counted(self) -> list[UntimedSteps]:
        counted, self._untimed = self._untimed, []
        return counted

    def finished(self) -> list[tuple[FinishedStep, Tensor | None]]:
        called_s, enqueued = perf_counter(), self.enqueued
        now = self._now()
        done, self._first = self._first, []
        while self._iterations:
            iteration = self._iterations[0]
            if isinstance(iteration, UntimedSteps):
                self._iterations.popleft()
                finished_s = min(max(iteration.finished_s, self._reference_s), now)
                self._untimed.append(iteration._replace(finished_s=finished_s))
                continue
            if iteration.end is not None and not self._timestamps.passed(iteration.end):
                break
            self._iterations.popleft()
            self._waited_ms += iteration.data_s * 1e3
            halves = self._halves(iteration)
            if iteration.end is None:
                self._held += iteration.timestamps
            else:
                done.append((self._measure(iteration, halves, now), iteration.loss))
        self.until_s = now
        if self.enqueued < enqueued:  # else the host waits for the device anyway
            self.spent_s += perf_counter() - called_s
        return done

    def _halves(self, iteration: _Iteration[TimestampT]) -> _Halves[TimestampT]:
        spans: dict[str, Spans[TimestampT]] = {"prepare": [], "train": []}
        if iteration.timestamps:
            ends = [*iteration.timestamps[1:], iteration.end]
            for name, begin, end in zip(iteration.names, iteration.timestamps, ends, strict=True):
                if name in self._lanes and end is not None:
                    spans[self._lanes[name]].append((name, begin, end))
        prepare = spans["prepare"]
        begins = next(filter(None, map(self._lanes.get, iteration.names)), None)
        ahead = iteration.end is None or begins != "prepare"
        if ahead:
            prepare, self._prepared = self._prepared, prepare
        return _Halves(prepare=prepare, train=spans["train"], ahead=ahead and prepare != [])

    def _measure(
        self, iteration: _Iteration[TimestampT], halves: _Halves[TimestampT], now: float
    ) -> FinishedStep:
        step, end, after = iteration.step, iteration.end, iteration.after
        assert step is not None
        assert end is not None
        if after is None:
            began_s, step_ms = self._reference_s, self._timestamps.between_ms(self._reference, end)
            began_cpu_s = self._reference_cpu_s
        else:  # a busy device reaches this timestamp at the end of the step before
            began_s = max(after.at_s, self._reference_s)
            step_ms = self._timestamps.between_ms(after.timestamp, end)
            began_cpu_s = after.cpu_s
            self._timestamps.release(after.timestamp)
        # an iteration that ended before the last look was not finished at that look
        earliest = self.until_s if iteration.ended_s <= self.until_s else iteration.began_s
        finished_s = min(max(began_s + step_ms / 1e3, earliest, self._reference_s), now)
        count, host_s = iteration.count, iteration.ended_s - iteration.began_s
        step_ms /= count
        self.look.take(step_ms, count)
        parts_ms: dict[str, tuple[float, ...]] = {}
        values: dict[str, float] = {}
        if halves.prepare or halves.train:
            parts_ms = self._add_phases(values, halves)
        if iteration.values:
            values.update(iteration.values)
        # phases are named freely: these names are the clock's
        values["data_ms"] = self._waited_ms / count
        values["host_ms"] = (host_s - iteration.data_s) * 1e3 / count
        if iteration.cpu_s is not None and began_cpu_s is not None:
            values["cpu_ms"] = (iteration.cpu_s - began_cpu_s) * 1e3 / count
        record = FinishedStep(
            step,
            iteration.segment,
            finished_s,
            step_ms,
            values,
            count,
            iteration.samples,
            iteration.tokens,
            parts_ms,
        )
        self._time_collectives(iteration, end)
        self._waited_ms = 0.0
        self._timestamps.release(*self._held)
        self._held = [*iteration.timestamps, end]
        self._trained = halves.train
        if after is None and iteration.began_s >= self._break_s:
            self.step_ms = step_ms
        self._reference, self._reference_s = end, finished_s
        self._reference_cpu_s = iteration.cpu_s
        return record

    def _time_collectives(self, iteration: _Iteration[TimestampT], end: TimestampT) -> None:
        calls, segment = iteration.collectives, iteration.segment
        if calls is None or segment != self._collectives_of:
            self.collective_times, self._collectives_of = None, segment
        if calls is None:
            return
        borders = [border for call in calls for border in call]
        # shards that are gathered ahead may come after the end of the step
        if borders and iteration.timestamps and all(map(self._timestamps.passed, borders)):
            began, between_ms = iteration.timestamps[0], self._timestamps.between_ms
            at_ms = [[between_ms(began, border) for border in call] for call in calls]
            ends = [*iteration.timestamps[1:], end]
            phases = zip(iteration.names, iteration.timestamps, ends, strict=True)
            self.collective_times = collective_times(
                [span for call in at_ms for span in pairwise(call)],
                [
                    (between_ms(began, a), between_ms(began, b))
                    for name, a, b in phases
                    if name == WAIT
                ],
            )
        self._timestamps.release(*borders)

    def _add_phases(
        self, values: dict[str, float], halves: _Halves[TimestampT]
    ) -> dict[str, tuple[float, ...]]:
        parts_ms: dict[str, tuple[float, ...]] = {}
        measured, busy_ms = set(), 0.0
        for name, of_name in groupby([*halves.prepare, *halves.train], itemgetter(0)):
            parts = tuple(self._timestamps.between_ms(begin, end) for _, begin, end in of_name)
            measured.add(self._lanes[name])
            phase_ms = sum(parts)
            busy_ms += phase_ms
            values[f"{name}_ms"] = values.get(f"{name}_ms", 0.0) + phase_ms
            if len(parts) > 1:
                parts_ms[name] = parts_ms.get(name, ()) + parts
        overlap_ms = self._overlap_ms(halves)
        if overlap_ms is not None:
            values["overlap_ms"] = overlap_ms
        if measured == set(self._lanes.values()) and not (halves.ahead and overlap_ms is None):
            values["device_ms"] = busy_ms - (overlap_ms or 0.0)
        return parts_ms

    def _overlap_ms(self, halves: _Halves[TimestampT]) -> float | None:
        if not halves.ahead or not self._trained:
            return None
        ended = self._trained[-1][2]
        lasted_ms = self._timestamps.between_ms(self._trained[0][1], ended)
        begin = self._timestamps.between_ms(ended, halves.prepare[0][1])
        end = self._timestamps.between_ms(ended, halves.prepare[-1][2])
        return max(0.0, min(end, 0.0) - max(begin, -lasted_ms))


def _is_seen(count: int, recorded: Sequence[TimestampT]) -> bool:
    """Whether its marks were: of steps timed together none is."""
    return count == 1 and len(recorded) > 1
