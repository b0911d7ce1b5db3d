"""Fold events and samples into interval rows. No I/O, no clock.

A row covers (began_s, ended_s]. It is returned once nothing that belongs to it can still come, so
no row is ever revised. Rows follow each other without a gap, on a grid of equal intervals. They
also end at the last step before a lever change and where the first step after it may start: so
each row belongs to one segment, and the change itself is in no row with steps. A step counts in
the row in which it finished. `train_s` is the training time of a row, also of steps that finish
later: a setting's rate is the sum of its rows' timed steps over the sum of their `train_s`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf, nextafter
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.protocol.records import Settings
from gpudash.protocol.training import Progress, State, Step, Untimed
from gpudash.recording.gpu_interval import ENERGY_REACH_S, GpuInterval, GpuTrack
from gpudash.recording.rank_steps import SWITCH_S, RankSteps, RankTracks, in_order
from gpudash.statistics import total

GRACE_S = 0.5
"""A row waits for a sample from after its end, as samples come in order. It waits at most until
every step up to this time after its end is known, and `ENERGY_REACH_S` longer for a reading of an
energy counter."""
AT_ONCE, AT_CLOSE = 100, 100_000
"""Most rows that a message completes, and the end: a clock that jumps fills no memory or disk."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a recording, of the whole job."""

    began_s: float
    ended_s: float
    """Both in seconds of the monotonic clock; always after `began_s`."""
    workload: str
    segment: int
    """Number of lever changes and restarts; never decreases. A switch shorter than `SWITCH_S` is in
    the first row of its segment, and has no row of its own."""
    settings: Settings
    gpus: tuple[GpuInterval, ...] = ()
    """All GPUs seen up to the end of the row."""
    ranks: tuple[RankSteps, ...]
    """What each rank did; rank 0 comes first, and always."""
    world_size: int = 1
    """The number of ranks."""
    train_s: float
    """Seconds in which the training was not paused, changing levers, starting or restarting."""

    @property
    def step(self) -> int:
        """Rank 0's step count at the end: all ranks train a step together."""
        return self.ranks[0].step

    @property
    def steps(self) -> int:
        return self.ranks[0].steps

    @property
    def steps_per_s(self) -> float | None:
        """Mean rate over the whole row; None without training."""
        return None if self.rated_s is None else self.steps / self.rated_s

    @property
    def rated_s(self) -> float | None:
        """Seconds that rates of the row are over: all of it, and none without training."""
        return self.ended_s - self.began_s if self.train_s > 0 else None

    @property
    def samples(self) -> int | None:
        return total(one.samples for one in self.ranks)

    @property
    def values(self) -> dict[str, float | str]:
        return self.ranks[0].values


class _Segment(NamedTuple):
    """Settings, and the time from which rows have them."""

    number: int
    workload: str
    settings: Settings
    worker: int
    begins_s: float  # infinite until the device has finished `after_step`
    trains_s: float  # when its first step may start: the lever change lies between
    after_step: int = 0


class Intervals:
    """Folds rank 0's messages and all samples, which come at most `GRACE_S` late."""

    def __init__(
        self, began_s: float, interval_s: float = 0.5, ranks: RankTracks | None = None
    ) -> None:
        self._began_s = began_s
        self._interval_s = interval_s
        self._border = 1  # the grid's next border
        self._start_s = began_s  # of the row in progress
        self._known_s = -inf  # all steps up to here are known
        self._sampled_s = -inf  # all samples up to here have arrived
        self._now = _Segment(0, "", {}, -1, began_s, began_s)
        self._next: deque[_Segment] = deque()
        self._last_step = 0
        self._last_finish_s = -inf  # or the time when the worker was ready
        self._breaks: list[tuple[float, float]] = []  # from, to: times without training
        self._stopped_s = -inf  # training stopped then; infinite while it runs
        self._pausing: State | None = None  # a pause whose last step is not finished yet
        self._last_segment = 0
        self._gpus: dict[str, GpuTrack] = {}
        self._ranks = ranks or RankTracks()
        self._closed = False

    def fold(self, item: Event | Reading) -> tuple[Interval, ...]:
        match item:
            case State():
                self._turn(item)
            case Progress():
                self._progress(item)
            case GpuReading():
                track = self._gpus.setdefault(item.uuid, GpuTrack(item.index, item.uuid))
                track.add(item)
                self._sampled(item.at_s)
            case HostReading():
                self._ranks.take(0, item)
                self._sampled(item.at_s)
            case _:
                return ()
        return tuple(islice(self._complete(self._whole_s), AT_ONCE))

    def close(self, at_s: float) -> Iterator[Interval]:
        """Yield the remaining rows, up to `at_s` or to a later known step. None follow."""
        end_s = max(at_s, self._last_finish_s)
        yield from islice(self._complete(end_s), AT_CLOSE)
        border_s = self._began_s + self._border * self._interval_s
        if self._start_s < end_s < border_s and not self._closed:
            yield self._row(end_s)
        self._closed = True

    def _turn(self, state: State) -> None:
        if state.process is not None and "starts" in state.turns:
            self._start(state, state.process.ready_s)
        elif "changes" in state.turns:
            self._change(state.segment, state.settings, state.after_step, state.at_s)
        if state.phase in ("finished", "failed"):
            ended_s = max(state.trained_until_s or state.at_s, self._last_finish_s)
            self._stopped_s = min(self._stopped_s, ended_s)
        elif state.stood is not None and state.phase == "training":
            self._go_on(state.at_s)
        elif state.stood is None and "pauses" in state.turns:
            self._pausing = state
            self._pause()

    def _start(self, state: State, ready_s: float) -> None:
        self._ranks.take(0, state)
        number, workload, settings = state.segment, state.workload, state.settings
        worker = self._latest.worker + 1
        if worker == 0:  # the first worker's rows begin with the run
            began_s = self._began_s
            self._now = _Segment(number, workload, settings, 0, began_s, began_s)
            self._ranks.begin(worker)
        else:
            self._next = deque(one for one in self._next if one.begins_s < inf)
            self._next.append(_Segment(number, workload, settings, worker, ready_s, ready_s))
        self._stopped_s = min(self._stopped_s, self._last_finish_s)
        self._go_on(ready_s)
        self._last_step = state.after_step  # more than 0 if it had begun before
        self._last_finish_s = max(self._last_finish_s, ready_s)
        self._known_s = max(self._known_s, ready_s)

    def _pause(self) -> None:
        if self._pausing is not None and self._last_step >= self._pausing.after_step:
            self._stopped_s = max(self._pausing.at_s, self._last_finish_s)
            self._pausing = None

    def _go_on(self, at_s: float) -> None:
        self._breaks.append((self._stopped_s, at_s))
        self._stopped_s, self._pausing = inf, None

    @property
    def _whole_s(self) -> float:
        overdue_s = self._known_s - GRACE_S
        metered_s = min((track.metered_s for track in self._gpus.values()), default=inf)
        sampled_s = max(self._sampled_s, overdue_s)
        ranks_s = max(self._ranks.known_s, overdue_s)
        return min(self._known_s, ranks_s, sampled_s, max(metered_s, overdue_s - ENERGY_REACH_S))

    @property
    def _latest(self) -> _Segment:
        return self._next[-1] if self._next else self._now

    def _change(self, number: int, settings: Settings, after_step: int, at_s: float) -> None:
        if number <= self._latest.number:
            return
        begins_s = self._last_finish_s if after_step <= self._last_step else inf
        latest = self._latest
        self._next.append(
            _Segment(number, latest.workload, settings, latest.worker, begins_s, at_s, after_step)
        )

    def _progress(self, event: Progress) -> None:
        self._ranks.place(event, [self._placed(step) for step in in_order(event)])
        self._known_s = max(self._known_s, event.until_s)

    def _placed(self, step: Step | Untimed) -> Step | Untimed:
        segment, earliest_s = step.segment, self._last_finish_s
        if segment > self._latest.number:  # unannounced: it still gets a row of its own segment
            step_ms = step.step_ms if isinstance(step, Step) else 0.0
            begun_s = step.finished_s - step_ms / 1000
            self._change(segment, self._latest.settings, self._last_step, begun_s)
        if self._next:
            self._locate_borders(step)
        if segment > max(self._last_segment, self._now.number):
            earliest_s += 1e-6  # steps of two segments must not finish at once: each needs a row
        self._last_finish_s = max(step.finished_s, earliest_s)
        self._last_step, self._last_segment = step.step, segment
        self._pause()
        if step.finished_s >= earliest_s:
            return step
        return replace(step, finished_s=earliest_s)

    def _locate_borders(self, step: Step | Untimed) -> None:
        for index, segment in enumerate(self._next):
            if segment.begins_s == inf and segment.after_step <= step.step:
                at_s = step.finished_s if segment.after_step == step.step else -inf
                at_s = max(at_s, self._last_finish_s)
                self._next[index] = segment._replace(begins_s=at_s)

    def _complete(self, until_s: float) -> Iterator[Interval]:
        while not self._closed:
            border_s = self._began_s + self._border * self._interval_s
            end_s = border_s
            if self._start_s < self._now.trains_s:
                end_s = min(end_s, self._now.trains_s)
            if self._next:
                # returned rows are not revised: the change then shows from here on
                end_s = min(end_s, max(self._next[0].begins_s, self._start_s))
            if end_s > until_s:
                return
            if end_s > self._start_s:
                yield self._row(end_s)
            if end_s == border_s:
                self._border += 1
            self._enter_segments(end_s)

    def _enter_segments(self, at_s: float) -> None:
        while self._next and self._next[0].begins_s <= at_s:
            now = self._next.popleft()
            self._breaks.append((now.begins_s, now.trains_s))
            is_long = now.trains_s - now.begins_s >= SWITCH_S
            self._now = now if is_long else now._replace(trains_s=now.begins_s)
            self._ranks.begin(now.worker)

    def _sampled(self, at_s: float) -> None:
        # another sample of the same moment may follow
        self._sampled_s = max(self._sampled_s, nextafter(at_s, -inf))

    def _row(self, end_s: float) -> Interval:
        began_s, self._start_s = self._start_s, end_s
        now = self._now
        settings_s = now.trains_s if began_s >= now.trains_s else now.begins_s
        return Interval(
            began_s=began_s,
            ended_s=end_s,
            workload=now.workload,
            segment=now.number,
            settings=now.settings,
            gpus=tuple(
                track.take(began_s, end_s, settings_s)
                for track in self._gpus.values()
                if track.first_s <= end_s
            ),
            ranks=self._ranks.row(end_s, now.number),
            world_size=self._ranks.world_size,
            train_s=self._train_s(began_s, end_s),
        )

    def _train_s(self, began_s: float, end_s: float) -> float:
        train_s = outside_s(began_s, end_s, [*self._breaks, (self._stopped_s, inf)])
        self._breaks = [one for one in self._breaks if one[1] > end_s]
        return train_s


def outside_s(began_s: float, ended_s: float, stretches: Iterable[tuple[float, float]]) -> float:
    found_s, reached_s = 0.0, began_s
    for from_s, to_s in sorted(stretches):
        if to_s > from_s:
            found_s += max(min(from_s, ended_s) - reached_s, 0.0)
            reached_s = max(reached_s, min(to_s, ended_s))
    return found_s + (ended_s - reached_s)
