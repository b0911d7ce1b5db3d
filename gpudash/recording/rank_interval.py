"""What one of several ranks did during one interval."""

from collections import deque
from collections.abc import Iterable
from math import inf

import msgspec

from gpudash.protocol import HostReading, Progress, Started, Step
from gpudash.recording.readings import hold, over_time, take
from gpudash.statistics import Means, mean, percentiles, total

PER_STEP = ("data_ms", "host_ms", "device_ms")
"""Told as the mean over the steps that they were measured in."""
HELD_S = 20.0
"""Steps wait so much longer than an interval for rank 0, which ends it; older ones are let go."""
MOST_READINGS = 512
"""Of a rank's processes, read once a second, that wait likewise: in a hang for minutes."""


class RankInterval(msgspec.Struct, frozen=True, kw_only=True):
    """One rank during one interval. Of rank 0 only its GPU: the rest is the interval's own."""

    rank: int
    gpu_uuid: str | None = None
    """The GPU that it trains on."""
    step: int = 0
    """Its count of steps at the end."""
    steps: int = 0
    """Steps that it finished."""
    samples: int | None = None
    """Of these."""
    tokens: int | None = None
    total_samples: int | None = None
    """Of all steps up to `step`; None also in a CSV and in older logs."""
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    times_ms: dict[str, float] = {}
    """`PER_STEP` by name; absent where it was not measured."""
    phases_ms: dict[str, float] = {}
    parts_ms: dict[str, tuple[float, ...]] = {}
    """Of those that each step cut into equally many parts."""
    loss: float | None = None
    """The newest that it told."""
    host: dict[str, float | str] = {}
    """Of its processes, by metric; absent where it was not measured, as in every second row."""


def mean_phases_ms(steps: Iterable[Step]) -> dict[str, float]:
    """Return each phase as the mean over the steps that it was measured in."""
    means = Means()
    for step in steps:
        means.add(step.phases_ms or {}, step.count)
    return means.values()


def mean_parts_ms(steps: Iterable[Step]) -> dict[str, tuple[float, ...]]:
    """Return the parts of each phase that all measured steps cut alike, as means."""
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
    """The steps of one rank, and readings of its processes, that belong to intervals still open."""

    def __init__(self, rank: int, held_s: float) -> None:
        self._rank = rank
        self._held_s = held_s
        self._gpu_uuid: str | None = None
        self._steps: deque[Step] = deque()
        self._host: list[HostReading] = []
        self._pid: int | None = None
        self._told = 0  # steps of this process up to then were told; by no clock, which may change
        self._step = 0
        self._samples: int | None = None  # of all steps told
        self._loss: float | None = None
        self.known_s: float | None = None
        """Every step finished before is known; None before it has told of any."""

    def take(self, message: Started | Progress | HostReading) -> None:
        """Take how it started, what it trained, or what was read of its processes."""
        if isinstance(message, HostReading):
            hold(self._host, message, MOST_READINGS)
            return
        if isinstance(message, Started):
            self._gpu_uuid, self._step, self._loss = message.device.uuid, 0, None
            self._told = self._told if message.pid == self._pid else 0
            self._pid = message.pid
            return
        new = [step for step in message.steps if step.step > self._told]
        self._steps += new
        self._told = max([self._told, *(step.step for step in new)])
        while self._steps and self._steps[-1].finished_s - self._steps[0].finished_s > self._held_s:
            self._steps.popleft()
        self._loss = self._loss if message.loss is None else message.loss
        self._samples = message.total_samples
        self.known_s = message.until_s

    def interval(self, ended_s: float) -> RankInterval:
        """Return what it did up to then, and forget it."""
        steps = []
        while self._steps and self._steps[0].finished_s <= ended_s:
            steps.append(self._steps.popleft())
        read = take(self._host, -inf, ended_s)
        counts = [step.count for step in steps]
        p50, p95 = percentiles((step.step_ms for step in steps), (50, 95), counts)
        times = Means()
        for step in steps:
            times.add({name: getattr(step, name) for name in PER_STEP}, step.count)
            self._step = step.step
        return RankInterval(
            rank=self._rank,
            gpu_uuid=self._gpu_uuid,
            step=self._step,
            steps=sum(counts),
            samples=total(step.samples for step in steps) if steps else None,
            tokens=total(step.tokens for step in steps) if steps else None,
            total_samples=self._total_samples() if steps else None,
            step_ms_p50=p50,
            step_ms_p95=p95,
            times_ms=times.values(),
            phases_ms=mean_phases_ms(steps),
            parts_ms=mean_parts_ms(steps),
            loss=self._loss,
            host=over_time("host", read) if read else {},
        )

    def _total_samples(self) -> int | None:
        later = total(step.samples for step in self._steps)
        return None if self._samples is None or later is None else self._samples - later


class RankTracks:
    """Those of all ranks."""

    def __init__(self, interval_s: float = 0.5) -> None:
        self._held_s = interval_s + HELD_S
        self._tracks: dict[int, RankTrack] = {}
        self._world_size = 1

    def take(self, rank: int, message: Started | Progress | HostReading) -> None:
        """Take what is told of a rank; of rank 0 only how it started."""
        if isinstance(message, Started):
            self._world_size = message.world_size
        self._tracks.setdefault(rank, RankTrack(rank, self._held_s)).take(message)

    @property
    def world_size(self) -> int:
        """How many ranks there are, those included that are not heard of."""
        return max(self._world_size, len(self._tracks))

    @property
    def known_s(self) -> float:
        """Up to when nothing is missing of any rank."""
        known = (track.known_s for track in self._tracks.values())
        return min((one for one in known if one is not None), default=inf)

    def intervals(self, ended_s: float) -> tuple[RankInterval, ...]:
        """Return what each did up to then; none for a single one."""
        tracks = sorted(self._tracks.items()) if len(self._tracks) > 1 else ()
        return tuple(track.interval(ended_s) for _, track in tracks)
