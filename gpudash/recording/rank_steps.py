"""Fold what one rank says into the rows of a recording: alike for every rank. No I/O, no clock."""

from collections import deque
from collections.abc import Sequence
from itertools import repeat, takewhile
from math import inf
from typing import Literal

import msgspec

from gpudash.metrics import process_reading
from gpudash.protocol.readings import HostReading
from gpudash.protocol.training import Progress, State, Step, Untimed
from gpudash.recording.readings import MOST_HELD, hold, over_time, take
from gpudash.statistics import percentiles, total
from gpudash.window import Window

HELD_S = 20.0
"""Seconds beyond an interval that another rank's messages are kept while rank 0, which ends
intervals, is silent."""
MOST_READINGS = 512
"""Most readings of another rank's processes that are kept likewise: minutes of a hang."""
SWITCH_S = 0.01
"""Steps further apart have a break between them: a pause, or a lever change."""


class RankSteps(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank did in an interval."""

    rank: int = 0
    gpu_uuid: str | None = None
    """The GPU that it trains on."""
    step: int = 0
    """Its step count at the end; a restarted process counts from 0."""
    steps: int = 0
    """Steps that its device finished in the interval."""
    samples: int | None = None
    """Samples of these steps; of untimed ones, as far as known."""
    tokens: int | None = None
    """Their tokens, likewise; None without a step."""
    timed: int = 0
    """Those of these steps whose times are known."""
    finished_s: float | None = None
    """When the last of them finished."""
    values: dict[str, float | str] = {}
    """By metric, absent if not measured: of its steps, over those in which each was measured; of
    its processes, over their readings; and its loss."""
    transform_ms: dict[str, float] = {}
    """Time per sample of each transform in a loader worker, as last reported."""

    @property
    def untimed(self) -> int:
        return self.steps - self.timed


class _RankTrack:
    """One rank's messages. Rank 0 ends the intervals; if it is silent, the others' wait a while."""

    def __init__(self, rank: int, held_s: float) -> None:
        self._rank = rank
        self._held_s = held_s if rank else inf
        self._most_readings = MOST_READINGS if rank else MOST_HELD
        self._gpu_uuid: str | None = None
        self._steps: deque[tuple[Step | Untimed, int]] = deque()  # and the number of its process
        self._reports: deque[Progress] = deque()  # for values that are not a step's
        self._readings: list[HostReading] = []
        self._losses: deque[tuple[int, int, float]] = deque()  # (process, step, loss)
        self._newest = 0  # step number of its process; a time could change with the clock
        self._started = -1  # number of the newest process
        self._begin(-1)
        self.known_s: float | None = None
        """All steps up to this time are known; None before the first report."""

    def _begin(self, process: int) -> None:
        self._process = process  # that of the rows
        self._step = 0
        self._holding: dict[str, float | str] = {}  # values that hold until they are told again

    def begin(self, process: int) -> None:
        """Each process counts its steps from 0."""
        if process > self._process:
            self._begin(process)

    def take(self, message: State | Progress | HostReading) -> None:
        match message:
            case HostReading():
                hold(self._readings, message, self._most_readings)
            case State():
                self._turn(message)
            case Progress():
                self.report(message, in_order(message))

    def _turn(self, state: State) -> None:
        if state.process is not None and "starts" in state.turns:
            self._gpu_uuid = state.process.device.uuid
            self._started += 1
            if "replaces" in state.turns or not self._rank:  # what rank 0 says comes once
                self._newest = 0

    def report(self, report: Progress, steps: Sequence[Step | Untimed]) -> None:
        """Take its values, and its steps as they are placed."""
        new = [step for step in steps if step.step > self._newest]
        self._steps += zip(new, repeat(self._started))
        self._newest = max([self._newest, *(step.step for step in new)])
        self.known_s = report.until_s
        while self._steps and self._is_overdue(self._steps[0][0].finished_s):
            self._steps.popleft()
        self._reports.append(report)
        while self._is_overdue(self._reports[0].until_s):
            self._reports.popleft()
        if report.loss is not None:
            loss_step = report.total_steps if report.loss_step is None else report.loss_step
            self._losses.append((self._started, loss_step, report.loss))
        reading = process_reading(report)
        if reading is not None:
            hold(self._readings, reading, self._most_readings)

    def _is_overdue(self, at_s: float) -> bool:
        return self.known_s is not None and self.known_s - at_s > self._held_s

    def row(self, ended_s: float, segment: float) -> RankSteps:
        """Leave steps after `segment` to later rows."""
        known = self._steps_until(ended_s, segment)
        steps = [step for step in known if isinstance(step, Step)]
        untimed = [step for step in known if isinstance(step, Untimed)]
        window = Window(steps)
        transform_ms = self._reported_until(ended_s)
        self._hold_loss()
        readings = take(self._readings, -inf, ended_s)
        read = over_time("host", readings) | over_time("own", readings)
        return RankSteps(
            rank=self._rank,
            gpu_uuid=self._gpu_uuid,
            step=self._step,
            steps=round(window.steps) + sum(step.count for step in untimed),
            samples=_amount("samples", window, untimed),
            tokens=_amount("tokens", window, untimed) if known else None,
            timed=round(window.steps),
            finished_s=steps[-1].finished_s if steps else None,
            values=_values(window, steps) | self._holding | read,
            transform_ms=transform_ms,
        )

    def _steps_until(self, ended_s: float, segment: float) -> list[Step | Untimed]:
        due = takewhile(
            lambda one: one[0].finished_s <= ended_s and one[0].segment <= segment, self._steps
        )
        found = [self._steps.popleft() for _ in list(due)]
        for step, process in found[-1:]:
            self.begin(process)
            self._step = step.step
        return [step for step, _ in found]

    def _reported_until(self, ended_s: float) -> dict[str, float]:
        transform_ms: dict[str, float] = {}
        while self._reports and self._reports[0].until_s <= ended_s:
            report = self._reports.popleft()
            transform_ms = report.transform_ms or transform_ms
            self._holding["skipped_samples"] = report.skipped_samples
        return transform_ms

    def _hold_loss(self) -> None:
        while self._losses and self._losses[0][:2] <= (self._process, self._step):
            process, _, loss = self._losses.popleft()
            if process == self._process:
                self._holding["loss"] = loss


class RankTracks:
    """The tracks of all ranks."""

    def __init__(self, interval_s: float = 0.5) -> None:
        self._held_s = interval_s + HELD_S
        self._tracks = {0: _RankTrack(0, self._held_s)}
        self._world_size = 1

    def take(self, rank: int, message: State | Progress | HostReading) -> None:
        if isinstance(message, State) and message.process is not None:
            self._world_size = message.process.world_size
        self._tracks.setdefault(rank, _RankTrack(rank, self._held_s)).take(message)

    def place(self, report: Progress, steps: Sequence[Step | Untimed]) -> None:
        """Take a report of rank 0, whose steps are placed in time."""
        self._tracks[0].report(report, steps)

    def begin(self, process: int) -> None:
        self._tracks[0].begin(process)

    @property
    def world_size(self) -> int:
        """Ranks that have sent nothing yet count too."""
        return max(self._world_size, len(self._tracks))

    @property
    def known_s(self) -> float:
        """The time up to which the steps of all ranks but 0 are known."""
        known = (track.known_s for rank, track in self._tracks.items() if rank)
        return min((one for one in known if one is not None), default=inf)

    def row(self, ended_s: float, segment: int) -> tuple[RankSteps, ...]:
        return tuple(
            track.row(ended_s, inf if rank else segment)
            for rank, track in sorted(self._tracks.items())
        )


def _amount(of: Literal["samples", "tokens"], timed: Window, more: Sequence[Untimed]) -> int | None:
    known = [amount for one in more if (amount := getattr(one, of)) is not None]
    whole = total((getattr(timed, of), *known))
    return None if whole is None or (more and not known and not timed.steps) else round(whole)


def in_order(report: Progress) -> Sequence[Step | Untimed]:
    if not report.untimed:
        return report.steps
    return sorted((*report.steps, *report.untimed), key=lambda one: one.step)


def _values(window: Window, steps: Sequence[Step]) -> dict[str, float | str]:
    p50, p95 = percentiles((step.step_ms, step.count) for step in steps)
    durations = {"step_ms": window.step_ms, "step_ms_p50": p50, "step_ms_p95": p95}
    return {**window.values(), **{name: ms for name, ms in durations.items() if ms is not None}}
