"""Reports finished steps, about 20 times a second. With totals, a late reader loses nothing."""

import time
from collections import deque
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ..metrics import has_phases
from ..protocol.training import Phase
from ..statistics import total
from .clock import PHASES_EVERY_S, Clock
from .collectives import Collectives
from .device import UNKNOWN, DeviceMemory
from .loss import FIRST_STEPS, DeviceLoss, HostLoss, LossReader
from .timestamps import EventTimestamps, HostTimestamps
from .wire import FinishedStep, StepReport, UntimedSteps

REPORT_EVERY_S = 0.05
LOSS_EVERY_S = 0.25
STATE_EVERY_S = 0.5
"""Seconds between two reads of memory and collectives."""
RECENT_STEPS = 40
"""Steps that `step_ms` averages over; it needs at least half as many."""


class Reports:
    """Collects what the instruments find, and reports it."""

    def __init__(
        self,
        clock: Clock[torch.Event] | Clock[float],
        losses: LossReader,
        input_report: Callable[[], tuple[dict[str, float], int]],
        synchronize: Callable[[], None],
        send: Callable[[StepReport], None],
        read_memory: Callable[[], DeviceMemory] = DeviceMemory,
        read_collectives: Callable[[], Collectives] = Collectives,
    ) -> None:
        """`read_memory` and `read_collectives` are called at most twice a second.

        Memory is read besides where an evaluation or a checkpoint begins and ends.
        """
        self._clock = clock
        clock.host.requests = lambda: read_memory().counts
        self._losses = losses
        self._input_report = input_report
        self._synchronize = synchronize
        self._send = send
        self._read_memory = read_memory
        self._read_collectives = read_collectives
        self._state_due_s = 0.0
        self.memory = UNKNOWN
        """Device memory as of the last report."""
        self._finished: list[tuple[FinishedStep, Tensor | None]] = []
        self._untimed: list[UntimedSteps] = []
        self._recent: deque[FinishedStep] = deque(maxlen=RECENT_STEPS)
        # of short steps few are measured in full, and none may be among the newest
        self._recent_in_full: deque[FinishedStep] = deque(maxlen=RECENT_STEPS)
        self._newest: tuple[int, Tensor] | None = None  # step and loss, until it has been read
        self._total_samples: int | None = 0
        self._skipped_samples = 0
        self._loss_due_s = 0.0
        self.due_s = time.monotonic() + REPORT_EVERY_S
        """When the next report is due."""
        self.total_steps = 0
        """Steps that the device has finished, as of the last report."""
        self.spent_s = 0.0
        """Seconds of host time since the last report, outside of steps and of the clock."""

    @property
    def step_ms(self) -> float | None:
        steps = self._newest_steps(self._recent)
        count = sum(step.count for step in steps)
        if count < RECENT_STEPS // 2:
            return None
        return sum(step.step_ms * step.count for step in steps) / count

    @property
    def phases_ms(self) -> dict[str, float]:
        found, steps = dict[str, float](), self._newest_steps(self._recent_in_full)
        for phase in self._clock.phases:
            ms = [step.values.get(f"{phase}_ms", 0.0) for step in steps]
            had_it = [one for one in ms if one > 0]
            if had_it:
                found[phase] = sum(had_it) / len(had_it)
        return found

    def _newest_steps(self, recent: Iterable[FinishedStep]) -> list[FinishedStep]:
        return [step for step in recent if step.segment == self._clock.segment]

    def look(self) -> None:
        self._finished += self._clock.finished()
        self._untimed += self._clock.counted()

    def begin_after(self, steps: int, samples: int | None) -> None:
        self.total_steps, self._total_samples = steps, samples

    def pass_over(self, step: int, count: int, samples: int | None) -> None:
        if count:
            self._clock.count(step, count, samples, None)

    def set_aside(self) -> None:
        """Report the steps that have finished since the last look without their times."""
        for one, _ in self._clock.finished():
            own = UntimedSteps(*one[:3], one.count, one.samples, one.tokens)
            self._untimed.append(own)
        self._untimed += self._clock.counted()

    def send(self) -> FinishedStep | None:
        """None if the report has no step."""
        spent_ms = (self._clock.spent_s + self.spent_s) * 1e3
        self._clock.spent_s = self.spent_s = 0.0
        own_s, began_s = time.thread_time(), time.monotonic()
        self.due_s = max(self.due_s + REPORT_EVERY_S, began_s)
        self.look()
        finished, self._finished = self._finished, []
        untimed, self._untimed = tuple(self._untimed), []
        steps = tuple(step for step, _ in finished)
        self._recent += steps
        self._recent_in_full += [step for step in steps if has_phases(step.values)]
        arrived = self._losses.arrived()
        loss_step, loss = arrived[-1] if arrived else (None, None)
        if finished:
            known = [(step.step, loss) for step, loss in finished if loss is not None]
            for first in known:
                if first[0] <= FIRST_STEPS:
                    self._losses.request(*first)
            self._newest = known[-1] if known and known[-1][0] > FIRST_STEPS else None
        counted: list[FinishedStep | UntimedSteps] = [*steps, *untimed]
        self.total_steps = max((self.total_steps, *(one.step for one in counted)))
        self._total_samples = total((self._total_samples, *(one.samples for one in counted)))
        if self._newest is not None and self._newest[0] == loss_step:
            self._newest = None
        if self._newest is not None and began_s >= self._loss_due_s:
            self._loss_due_s = began_s + LOSS_EVERY_S
            self._losses.request(*self._newest)
        transform_ms, skipped = self._input_report()
        self._skipped_samples += skipped
        self.memory, values = UNKNOWN, {}
        if self._is_state_due(steps, began_s):
            self.memory = self._read_memory()
            values = self.memory.values() | self._read_collectives().values()
            values |= self._clock.host.values()
        self._send(
            StepReport(
                until_s=self._clock.until_s,
                steps=steps,
                total_steps=self.total_steps,
                total_samples=self._total_samples,
                loss=loss,
                loss_step=loss_step,
                first_losses=tuple(one for one in arrived if one[0] <= FIRST_STEPS),
                transform_ms=transform_ms,
                skipped_samples=self._skipped_samples,
                instruments_ms=spent_ms,
                values=values,
                untimed=untimed,
            )
        )
        self._clock.spent_s = 0.0  # it is part of the time that follows
        self.spent_s = time.thread_time() - own_s
        self._clock.host.leave_out(self.spent_s)
        return steps[-1] if steps else None

    def _is_state_due(self, steps: tuple[FinishedStep, ...], now_s: float) -> bool:
        if now_s < self._state_due_s or not steps or steps[-1].segment != self._clock.segment:
            return False
        self._state_due_s = now_s + STATE_EVERY_S
        return True

    def send_last(self, steps: int = 0, samples: int | None = None) -> None:
        """Give `steps` and `samples` of the run if some steps were not timed."""
        self._synchronize()  # sync: the run is over, and a requested loss has arrived
        self.send()
        if self._newest is not None:
            self._losses.request(*self._newest)
        self._synchronize()  # sync: the loss just requested
        self.send()
        if steps and (steps, samples) != (self.total_steps, self._total_samples):
            self.total_steps, self._total_samples = steps, samples
            self.send()


def instruments(
    device: torch.device, phases: Iterable[Phase], phases_every_s: float = PHASES_EVERY_S
) -> tuple[Clock[torch.Event] | Clock[float], LossReader]:
    if device.type == "cuda":
        clock = Clock(EventTimestamps(device), phases, phases_every_s=phases_every_s)
        return clock, DeviceLoss(device)
    return Clock(HostTimestamps(), phases, phases_every_s=phases_every_s), HostLoss()
