"""Measures what gpudash costs a step of a script, in a training that does nothing else.

Its steps last some 60 ms and fill the caches with other things, as a script's do: called again and
again, the same hooks take a tenth of the time.
"""

import math
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..instrument.patching import uncompiled
from ..instrument.reporter import Reports, instruments
from ..instrument.wire import StepReport, encoded
from ..levers.training_objects import TrainingObjects
from ..protocol.training import Aside
from .grammar import PHASES
from .patches import patch
from .tracker import Tracker

STEPS, LEFT_OUT = 20, 4
WORK_S = 0.02
"""Seconds of a batch's making, of a forward and of a backward pass."""
FILLS_CACHES = torch.zeros(4 * 2**20)


class _Tracker(Tracker):
    """Counts its own CPU time: what else runs on the machine is not in it."""

    spent_s = 0.0

    @uncompiled
    def tell(self, event: str, *args: Any) -> bool | None:
        before_s, began_s = self.spent_s, time.thread_time()
        told = super().tell(event, *args)
        self.spent_s = before_s + time.thread_time() - began_s  # one event may tell another
        return told


class _Watcher:
    """Has each step reported, to nobody."""

    def __init__(self) -> None:
        self.tracker = _Tracker(self)
        self._reports: Reports | None = None

    def found(self, _found: TrainingObjects) -> None:
        meter = self.tracker.meter
        assert meter.clock is not None
        assert meter.losses is not None
        self._reports = Reports(meter.clock, meter.losses, lambda: ({}, 0), lambda: None, _write)

    def border(self, _step: int) -> None:
        if self._reports is not None:
            self._reports.send()

    def aside(self, why: Aside | None) -> None: ...

    def flush(self) -> None: ...

    def begins_anew(self) -> None: ...

    def loads(self) -> None: ...

    def idle(self) -> None: ...


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, batch: Tensor) -> Tensor:
        _work()
        loss: Tensor = self.layer(batch).sum()
        loss.register_hook(_work)  # type: ignore[no-untyped-call]  # in torch
        return loss


def instruments_us(device: torch.device) -> tuple[float, float]:
    """Return what a step costs on average, and one whose phases are measured."""
    watcher = _Watcher()
    patch(watcher.tracker)
    average_us = _step_us(watcher.tracker, device)
    meter = watcher.tracker.meter
    watcher.tracker.reset()
    meter.clock, meter.losses = instruments(device, PHASES, phases_every_s=0.0)
    meter.closely_until = math.inf
    return average_us, _step_us(watcher.tracker, device)


def _step_us(tracker: _Tracker, device: torch.device) -> float:
    model = _Model().to(device)
    optimizer = torch.optim.SGD(model.parameters())
    batches: Any = torch.zeros(STEPS, 1, 8)
    spent_s = []
    for batch in DataLoader(batches, batch_size=None, collate_fn=_made):
        model(batch.to(device)).backward()
        optimizer.step()
        optimizer.zero_grad()
        spent_s.append(tracker.spent_s)
        tracker.spent_s = 0.0
    return statistics.fmean(spent_s[LEFT_OUT:]) * 1e6


def _made(batch: Any) -> Any:
    _work()
    return batch


def _work(*_: object) -> None:
    until_s = time.perf_counter() + WORK_S
    while time.perf_counter() < until_s:
        FILLS_CACHES.add_(1)


def _write(report: StepReport) -> None:
    encoded(report, 0, 0, 0.0)
