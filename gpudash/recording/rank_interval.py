"""Summarise one of several ranks over an interval."""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any

import msgspec

from gpudash.protocol import HostReading, Progress, State, Step
from gpudash.recording.readings import hold, over_time, take
from gpudash.statistics import Means, mean, percentiles, total

PER_STEP = ("data_ms", "host_ms", "device_ms")
"""Metrics given as means over the steps in which they were measured."""
HELD_S = 20.0
"""Seconds beyond an interval that steps are kept while rank 0, which ends intervals, is silent."""
MOST_READINGS = 512
"""Most readings of a rank's processes that are kept likewise, one a second: minutes of a hang."""


class RankInterval(msgspec.Struct, frozen=True, kw_only=True):
    """One rank during one interval. Rank 0 has only its GPU here: the interval has the rest."""

    rank: int
    gpu_uuid: str | None = None
    """The GPU that the rank trains on."""
    step: int = 0
    """The rank's step count at the end."""
    steps: int = 0
    """Steps that it finished in the interval."""
    samples: int | None = None
    """Samples of these steps."""
    tokens: int | None = None
    total_samples: int | None = None
    """Samples of all steps up to `step`; None in a CSV and in older logs."""
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    times_ms: dict[str, float] = {}
    """`PER_STEP` by name; absent if not measured."""
    phases_ms: dict[str, float] = {}
    parts_ms: dict[str, tuple[float, ...]] = {}
    """Parts of phases that all steps cut into the same number of parts."""
    loss: float | None = None
    """The newest loss that it reported."""
    host: dict[str, float | str] = {}
    """Metrics of its processes; absent if not measured, as in every second row."""


def of_steps(steps: Sequence[Step]) -> dict[str, Any]:
    """Return the fields of an interval, of any rank, that follow from its steps alone."""
    p50, p95 = percentiles((step.step_ms, step.count) for step in steps)
    phases = Means()
    for step in steps:
        phases.add(step.phases_ms or {}, step.count)
    return {
        "steps": sum(step.count for step in steps),
        "tokens": total(step.tokens for step in steps) if steps else None,
        "step_ms_p50": p50,
        "step_ms_p95": p95,
        "phases_ms": phases.values(),
        "parts_ms": _mean_parts_ms(steps),
    }


def _mean_parts_ms(steps: Sequence[Step]) -> dict[str, tuple[float, ...]]:
    """Return the mean parts of each phase that all measured steps cut alike, in ms."""
    measured = [step for step in steps if step.phases_ms]
    cuts = [step.parts_ms or {} for step in measured]
    counts = [step.count for step in measured]
    means = {}
    for name in sorted(set[str]().union(*cuts)):
        parts = [cut.get(name, ()) for cut in cuts]
        if len(set(map(len, parts))) == 1:
            means[name] = tuple(mean(at, counts) or 0.0 for at in zip(*parts, strict=True))
    return means


class RankTrack:
    """One rank's steps and readings for intervals that are not complete."""

    def __init__(self, rank: int, held_s: float) -> None:
        self._rank = rank
        self._held_s = held_s
        self._gpu_uuid: str | None = None
        self._steps: deque[Step] = deque()
        self._host: list[HostReading] = []
        self._state: State | None = None
        self._pid: int | None = None
        self._newest = 0  # step number of this process; a time could change with the clock
        self._step = 0
        self._samples: int | None = None  # of all reported steps
        self._loss: float | None = None
        self.known_s: float | None = None
        """All steps up to this time are known; None before the first report."""

    def take(self, message: State | Progress | HostReading) -> None:
        """Fold a state, a report of steps, or a reading of the rank's processes."""
        if isinstance(message, HostReading):
            hold(self._host, message, MOST_READINGS)
            return
        if isinstance(message, State):
            self._turn(message)
            return
        new = [step for step in message.steps if step.step > self._newest]
        self._steps += new
        self._newest = max([self._newest, *(step.step for step in new)])
        while self._steps and self._steps[-1].finished_s - self._steps[0].finished_s > self._held_s:
            self._steps.popleft()
        self._loss = self._loss if message.loss is None else message.loss
        self._samples = message.total_samples
        self.known_s = message.until_s

    def _turn(self, state: State) -> None:
        before, self._state = self._state, state
        process = state.process
        if process is not None and state.starts_after(before):
            self._gpu_uuid, self._step, self._loss = process.device.uuid, 0, None
            self._newest = self._newest if process.pid == self._pid else 0
            self._pid = process.pid

    def interval(self, ended_s: float) -> RankInterval:
        """Return the interval up to `ended_s`, and forget its steps and readings."""
        steps = []
        while self._steps and self._steps[0].finished_s <= ended_s:
            steps.append(self._steps.popleft())
        read = take(self._host, -inf, ended_s)
        times = Means()
        for step in steps:
            times.add({name: getattr(step, name) for name in PER_STEP}, step.count)
            self._step = step.step
        return RankInterval(
            rank=self._rank,
            gpu_uuid=self._gpu_uuid,
            step=self._step,
            samples=total(step.samples for step in steps) if steps else None,
            total_samples=self._total_samples() if steps else None,
            times_ms=times.values(),
            **of_steps(steps),
            loss=self._loss,
            host=over_time("host", read) if read else {},
        )

    def _total_samples(self) -> int | None:
        later = total(step.samples for step in self._steps)
        return None if self._samples is None or later is None else self._samples - later


class RankTracks:
    """The tracks of all ranks."""

    def __init__(self, interval_s: float = 0.5) -> None:
        self._held_s = interval_s + HELD_S
        self._tracks: dict[int, RankTrack] = {}
        self._world_size = 1

    def take(self, rank: int, message: State | Progress | HostReading) -> None:
        """Fold a rank's message; rank 0's only if it is a start."""
        if isinstance(message, State) and message.process is not None:
            self._world_size = message.process.world_size
        self._tracks.setdefault(rank, RankTrack(rank, self._held_s)).take(message)

    @property
    def world_size(self) -> int:
        """Number of ranks, including ranks that have sent nothing yet."""
        return max(self._world_size, len(self._tracks))

    @property
    def known_s(self) -> float:
        """The time up to which the steps of all ranks are known."""
        known = (track.known_s for track in self._tracks.values())
        return min((one for one in known if one is not None), default=inf)

    def intervals(self, ended_s: float) -> tuple[RankInterval, ...]:
        """Return each rank's interval up to `ended_s`; empty for a single rank."""
        tracks = sorted(self._tracks.items()) if len(self._tracks) > 1 else ()
        return tuple(track.interval(ended_s) for _, track in tracks)
