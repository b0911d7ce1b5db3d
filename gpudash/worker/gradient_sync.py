"""Gradient synchronisation of a rank: its exposed part as a phase, and its collectives."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpudash.instrument.clock import Mark
from gpudash.instrument.collectives import Collectives, collectives_of
from gpudash.instrument.last_gradient import LastGradient
from gpudash.worker.phases import COMMUNICATION


class CommunicationMarks:
    """Marks exposed communication in the backward pass of a module with averaged gradients."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._last = LastGradient(module, self._mark_communication, self._mark_backward)
        self._mark: Mark = _unmarked

    def marked(self, mark: Mark) -> Mark:
        """Return a mark for an iteration, which also marks the end of the last gradient."""
        self._mark = mark
        return self._begin

    def collectives(self) -> Collectives:
        if isinstance(self.module, DistributedDataParallel):
            return collectives_of(self.module)
        return Collectives()

    def _begin(self, phase: str, /) -> None:
        if phase == "optimizer":
            self._last.end()
        self._mark(phase)
        if phase == "backward":
            self._last.begin()

    def _mark_communication(self) -> None:
        self._mark(COMMUNICATION)

    def _mark_backward(self) -> None:
        self._mark("backward")


def _unmarked(_phase: str, /) -> None: ...
