"""The user's training, in what outlasts a dashboard: settings, segment, steps."""

import os
from typing import Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from ..instrument.clock import Mark
from ..instrument.slowing import Slowing
from ..levers.known import TOGETHER
from ..levers.offers import UNKNOWN
from ..levers.precision import CUDNN_TF32
from ..levers.training_objects import TrainingObjects, modules_of
from ..protocol.commands import AnyCommand, Pause, Slow, Stop
from ..protocol.inspections import Timing
from ..protocol.records import Settings
from ..protocol.training import SCRIPT, Lever
from ..training.commanded import CommandedTraining, Levers
from .meter import Meter

NO_PAUSE = "the other processes would wait for this one, and give up"
NO_STOP = "a script of your own ends by itself or by a signal, not at a step"


class FollowedLevers(Levers, Protocol):
    """Levers that act on what is found in a script, as `gpudash.levers.ScriptLevers`."""

    @property
    def offers(self) -> tuple[Lever, ...]: ...

    def timings(self) -> tuple[Timing, ...]:
        """Time the roots' newest calls with each value of what computes; nothing is compiled."""

    def why_no_delay(self) -> str | None:
        """Return why a delay does not reach the loader; None if it does."""

    def update(self, found: TrainingObjects) -> None: ...


class ScriptTraining(CommandedTraining):
    """The user's training, in what stays while dashboards come and go."""

    def __init__(self, meter: Meter, found: TrainingObjects, levers: FollowedLevers) -> None:
        super().__init__()
        self.meter = meter
        self.found = found
        self.levers: FollowedLevers = levers
        self.slowing = Slowing(found.device)

    @property
    def step(self) -> int:
        return self.meter.steps

    @property
    def device(self) -> torch.device:
        return self.found.device

    @property
    def world_size(self) -> int:
        return self.found.world_size

    @property
    def settings(self) -> Settings:
        return {name: value for name, value in self.levers.settings.items() if value != UNKNOWN}

    @property
    def precision(self) -> str:
        value = self.levers.settings.get("precision", SCRIPT)
        return {SCRIPT: "", CUDNN_TF32: "fp32"}.get(value, value)

    def why_not(self, command: AnyCommand) -> str | None:
        if isinstance(command, Pause) and self.is_shared:
            return NO_PAUSE
        return NO_STOP if isinstance(command, Stop) else None

    def why_not_slow(self, slow: Slow) -> str | None:
        why = self.levers.why_no_delay() if slow.part == "loader" else None
        return why or super().why_not_slow(slow)

    def why_no_rehearsal(self) -> str | None:
        device = self.found.device
        if device.type != "cuda":
            return None
        free_bytes = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
        peak_bytes = torch.cuda.max_memory_allocated(device)
        if free_bytes - torch.cuda.memory_allocated(device) < peak_bytes:
            return "there is less free memory than a step takes"
        return None

    def timings(self) -> tuple[Timing, ...]:
        return self.levers.timings()

    def at_marks(self, call: Mark | None, renames: Mark | None = None) -> None:
        clock = self.meter.clock
        if clock is not None:
            clock.at_marks, clock.at_renames = call, renames

    def votes_on_way_back(self, changes: Settings) -> bool:
        return not TOGETHER.isdisjoint(changes)

    def interrupt(self) -> None:
        self.meter.interrupt()

    def watch(self) -> None:
        self.meter.active = True
        self.meter.interrupt()

    def unwatch(self) -> None:
        self.meter.active = False

    def begin_segment(self) -> None:
        super().begin_segment()
        if self.meter.clock is not None:
            self.meter.clock.segment = self.segment

    def look_closely(self, steps: float) -> None:
        self.meter.closely_until = self.step + steps

    def keep_calls(self, *, keep: bool) -> None:
        for root in (*self.found.roots, *self.found.frozen):
            root.keeps_calls = keep
            if not keep:
                root.newest = None

    def come_to(self, step: int) -> None:
        is_next = step == self.step + 1
        self.meter.border_at = step if is_next else step - 1
        self.keep_calls(keep=is_next)
        if is_next:
            self.meter.closely_until = max(self.meter.closely_until, step + 1)

    def owned(self) -> tuple[list[nn.Module], tuple[Optimizer, ...]]:
        return modules_of(self.found.roots), self.found.optimizers

    @property
    def is_captured(self) -> bool:
        """Most CUDA calls fail while a CUDA graph is being captured."""
        return self.found.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def synchronize(self) -> None:
        if self.found.device.type == "cuda":
            torch.cuda.synchronize(self.found.device)  # sync: around a block under the wall clock


def job() -> str:
    """Return a name of this job, the same in all its processes.

    Jobs on one machine differ in their port. The address is left out, as each node may write it in
    its own way. A job that torchrun restarts keeps its run id, and may get another port.
    """
    return ":".join(filter(None, map(os.environ.get, ("TORCHELASTIC_RUN_ID", "MASTER_PORT"))))
