"""Fold a worker's records into the result of each block. No I/O, no clock."""

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from gpudash.compare.meter import BlockEnergy, EnergyMeter
from gpudash.metrics import COMPARED, CORE_WAIT_WARNS_PCT
from gpudash.protocol.commands import Block
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import EnergyTick, GpuReading, HostReading, Reading
from gpudash.protocol.training import (
    TRAINING_ENDED,
    BlocksEnded,
    Progress,
    RefusalKind,
    Refused,
    State,
    Step,
    Timed,
)
from gpudash.statistics import mean, warm, without
from gpudash.window import Window

LAG_S = 0.25
"""Utilisation read within this many seconds of a block's begin still covers earlier time."""
TICK_PATIENCE_S = 1.0
"""Seconds of training after a block's end that its energy is waited for."""
SAMPLES_KEPT = 512
READINGS = ("gpu_util_pct", "cpu_pct", "core_wait_pct")
"""Readings of which a block has the mean."""


class MeasuredBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a block: sums and means over its steps.

    Warm-up steps are left out, and so is the last step, beside which a second stream prepares no
    next batch. A block timed by the wall clock has only the time of all steps.
    """

    number: int
    steps: int
    samples: int | None
    tokens: int | None = None
    busy_s: float
    """Sum of the steps' durations on the device, or the wall-clock time."""
    values: dict[str, float] = {}
    """By metric: means over the steps and over the readings. Absent = not measured."""
    others_pct: float | None = None
    """Share of the time in which processes of others had work on its GPU."""
    energy: BlockEnergy | str = ""
    """Of all GPUs, or why it is not known; empty if it was not asked for."""

    @property
    def ms_per_sample(self) -> float:
        """The cost to compare; ms a step if samples are unknown."""
        return self.busy_s * 1e3 / (self.samples or self.steps)

    @property
    def is_disturbed(self) -> bool:
        """Whether others were at work on its GPU.

        Waits for cores are no reason to leave a block out: a change may itself make them longer.
        """
        return (self.others_pct or 0.0) >= CORE_WAIT_WARNS_PCT

    def of(self, metric: str) -> float | None:
        match metric:
            case "steps_per_s":
                return self.steps / self.busy_s
            case "samples_per_s":
                return None if self.samples is None else self.samples / self.busy_s
            case _:
                return self.values.get(metric)


class NotRun(msgspec.Struct, frozen=True, kw_only=True):
    """A block whose settings are not possible."""

    number: int
    kind: RefusalKind
    reason: str


Outcome: TypeAlias = MeasuredBlock | NotRun


class _Open:
    """A block in progress, or one whose last steps the device has not finished yet."""

    def __init__(self, state: State, number: int) -> None:
        self.number = number
        self.segment = state.segment
        self.last_step: int | None = None  # known once the worker has left the block
        self.steps: list[Step] = []
        self.timed: Timed | None = None

    def count(self, step: Step) -> None:
        if step.since_break <= step.count:  # a loader prefetches batches in a pause
            self.steps = []
        kept = warm(step)
        if kept is not None:
            self.steps.append(kept)


class BlockLog:
    """Folds outcomes in order; a block cut off before its least number of steps has none."""

    def __init__(
        self,
        run: int = -1,
        blocks: Iterable[Block] = (),
        state: State | None = None,
        meter: EnergyMeter | None = None,
    ) -> None:
        """Let rank 0's records stand for all ranks; `state` is the newest one before the run."""
        self._run = run
        self._meter = meter
        process = state.process if state is not None else None
        self._ranks = process.world_size if process is not None else 1
        self._blocks = {block.number: block for block in blocks}
        self._open: deque[_Open] = deque()
        self._readings: deque[Reading] = deque(maxlen=2 * SAMPLES_KEPT)  # of GPU and host
        self._total_steps, self._known_s = 0, 0.0
        self._ended: str | None = None  # the reason, while the last block's steps may be unfinished
        self.over: str | None = None
        """Why no more outcomes will come; None while they may."""

    def expect(self, blocks: Iterable[Block]) -> None:
        self._blocks.update((block.number, block) for block in blocks)

    def fold(self, item: Event | Reading) -> tuple[Outcome, ...]:
        match item:
            case State():
                self._turn(item)
            case Refused(run=self._run, block=int(number)):
                self._open = deque(one for one in self._open if one.number != number)
                return (NotRun(number=number, kind=item.kind, reason=item.reason),)
            case Progress():
                return self._progress(item)
            case BlocksEnded(run=self._run):
                self._ended = item.why
            case GpuReading() | HostReading():
                self._readings.append(item)
            case EnergyTick() if self._meter is not None:
                self._meter.add(item)
                return self._finished()
            case Timed():
                self._time(item)
        return ()

    def _time(self, event: Timed) -> None:
        for one in self._open:
            if one.last_step is None and event.block == one.number:
                one.timed = event

    def _turn(self, state: State) -> None:
        has_ended = state.phase in ("starting", "finished", "failed")
        if has_ended or "starts" in state.turns:
            self.over = TRAINING_ENDED
        elif "changes" in state.turns:
            for one in self._open:
                if one.last_step is None:
                    one.last_step = state.after_step
            if state.run == self._run and state.block is not None:
                self._open.append(_Open(state, state.block))

    def _progress(self, event: Progress) -> tuple[Outcome, ...]:
        for step in event.steps:
            for one in self._open:
                if one.segment == step.segment:
                    one.count(step)
        self._total_steps, self._known_s = event.total_steps, event.until_s
        return self._finished()

    def _finished(self) -> tuple[Outcome, ...]:
        done: list[Outcome] = []
        while self._open:
            last_step = self._open[0].last_step
            if last_step is None or self._total_steps < last_step:
                break
            if self._awaits_tick(self._open[0]):
                break
            measured = self._measured(self._open.popleft(), last_step)
            done += [measured] if measured is not None else []
        if not self._open:
            self.over = self._ended
        return tuple(done)

    def _awaits_tick(self, one: _Open) -> bool:
        if self._meter is None or not one.steps:
            return False
        ended_s = one.steps[-1].finished_s
        return self._known_s < ended_s + TICK_PATIENCE_S and not self._meter.reaches(ended_s)

    def _measured(self, one: _Open, last_step: int) -> MeasuredBlock | None:
        block = self._blocks[one.number]
        if block.wall_clock is not None:
            return self._timed(one, block)
        kept = (without(step, int(step.step >= last_step)) for step in one.steps)
        steps = [step for step in kept if step is not None]
        window = Window(steps)
        if window.steps < block.min_steps:
            return None
        began_s = steps[0].finished_s - steps[0].count * steps[0].step_ms / 1e3
        ended_s = steps[-1].finished_s
        beside = [one for one in self._readings if began_s + LAG_S <= one.at_s <= ended_s]
        for reading in beside:
            window.read(reading, (*COMPARED, *READINGS))
        return MeasuredBlock(
            number=one.number,
            steps=round(window.steps),
            samples=self._of_all(window.samples),
            tokens=self._of_all(window.tokens),
            busy_s=window.busy_s,
            values=window.values(),
            others_pct=mean(one.others_pct for one in beside if isinstance(one, GpuReading)),
            energy="" if self._meter is None else self._meter.spent(began_s, ended_s),
        )

    def _timed(self, one: _Open, block: Block) -> MeasuredBlock | None:
        timed = one.timed
        if timed is None or timed.steps < block.min_steps:
            return None
        return MeasuredBlock(
            number=one.number,
            steps=timed.steps,
            samples=self._of_all(timed.samples),
            busy_s=timed.seconds,
        )

    def _of_all(self, samples: float | None) -> int | None:
        return None if samples is None else round(samples * self._ranks)
