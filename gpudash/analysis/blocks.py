"""What each block of a comparison or a sweep came to. No I/O, no clock."""

from collections import deque
from typing import TypeAlias

import msgspec

from gpudash.analysis.statistics import mean
from gpudash.records import (
    Changed,
    Event,
    GpuSample,
    HostSample,
    Progress,
    Refused,
    Sample,
    Settings,
    Step,
)

UTIL_LAG_S = 0.25
"""A utilisation read so soon after the block began still tells of the time before."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A block that was run: sums and means over its steps after the settling ones."""

    number: int
    settings: Settings
    steps: int
    samples: int
    busy_s: float
    """Sum of the steps' durations, as the device finished them."""
    host_ms: float | None
    """Mean time the host was occupied with a step."""
    util_pct: float | None
    cpu_pct: float | None

    @property
    def ms_per_sample(self) -> float:
        """What a comparison is about."""
        return self.busy_s * 1e3 / self.samples

    @property
    def steps_per_s(self) -> float:
        """Steps the device finished in a second."""
        return self.steps / self.busy_s


class NotRun(msgspec.Struct, frozen=True, kw_only=True):
    """A block whose settings cannot be."""

    number: int
    reason: str


Outcome: TypeAlias = Measured | NotRun


class _Open:
    """A block in progress."""

    def __init__(self, event: Changed, number: int) -> None:
        self.number = number
        self.segment = event.segment
        self.settings = event.settings
        self.settling = event.settling_steps
        self.last_step: int | None = None  # known once the worker has left the block
        self.steps: list[Step] = []

    def outcome(self, gpu: list[GpuSample], host: list[HostSample]) -> Outcome:
        if not self.steps:
            return NotRun(number=self.number, reason="no step was finished in it")
        began_s = self.steps[0].finished_s - self.steps[0].step_ms / 1e3
        ended_s = self.steps[-1].finished_s
        return Measured(
            number=self.number,
            settings=self.settings,
            steps=len(self.steps),
            samples=sum(step.samples for step in self.steps),
            busy_s=sum(step.step_ms for step in self.steps) / 1e3,
            host_ms=mean(step.host_ms for step in self.steps),
            util_pct=mean(
                one.util_pct for one in gpu if began_s + UTIL_LAG_S <= one.at_s <= ended_s
            ),
            cpu_pct=mean(one.cpu_pct for one in host if began_s <= one.at_s <= ended_s),
        )


class BlockLog:
    """Folds a worker's events and samples into outcomes, in the order of the blocks."""

    def __init__(self) -> None:
        self._open: deque[_Open] = deque()
        self._gpu: deque[GpuSample] = deque(maxlen=512)
        self._host: deque[HostSample] = deque(maxlen=512)

    @property
    def idle(self) -> bool:
        """Whether every block begun has its outcome."""
        return not self._open

    def fold(self, item: Event | Sample) -> tuple[Outcome, ...]:
        """Take one record; return the blocks whose outcome is known now."""
        match item:
            case Changed(rank=0):
                for one in self._open:
                    if one.last_step is None:
                        one.last_step = item.after_step
                if item.block is not None:
                    self._open.append(_Open(item, item.block))
            case Refused(block=int(number)):
                self._open = deque(one for one in self._open if one.number != number)
                return (NotRun(number=number, reason=item.reason),)
            case Progress(rank=0):
                return self._progress(item)
            case GpuSample():
                self._gpu.append(item)
            case HostSample():
                self._host.append(item)
        return ()

    def _progress(self, event: Progress) -> tuple[Outcome, ...]:
        for step in event.steps:
            for one in self._open:
                if one.segment == step.segment:
                    self._count(one, step)
        done: list[Outcome] = []
        while self._open:
            last = self._open[0].last_step
            if last is None or event.total_steps < last:
                break
            done.append(self._open.popleft().outcome(list(self._gpu), list(self._host)))
        return tuple(done)

    @staticmethod
    def _count(one: _Open, step: Step) -> None:
        if one.settling:
            one.settling -= 1
        else:
            one.steps.append(step)
