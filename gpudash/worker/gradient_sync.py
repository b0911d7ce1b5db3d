"""Gradient synchronisation as a rank reports it: the exposed part is a phase; and its size."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpudash.instrument.clock import Mark
from gpudash.instrument.collectives import Collectives, collectives_of
from gpudash.instrument.last_gradient import LastGradient
from gpudash.worker.phases import COMMUNICATION


class GradientSync:
    """One module, whose gradients are averaged."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._last = LastGradient(module, self._mark_communication, self._mark_part)
        self._mark: Mark = _unmarked

    def marked(self, mark: Mark) -> Mark:
        """Return what to mark an iteration with: the last gradient ends what is computed."""
        self._mark = mark
        return self._begin

    def collectives(self) -> Collectives:
        """Return those of a step."""
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

    def _mark_part(self) -> None:
        self._mark("backward")


def _unmarked(_phase: str, /) -> None:
    """Mark nothing: no iteration is measured."""
