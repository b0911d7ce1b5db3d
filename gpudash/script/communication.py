"""Follows the waits for other processes, and what collectives move."""

from threading import get_ident
from typing import Any

from ..instrument.collectives import BytesMoved, together
from ..instrument.guard import event
from .calls import CalledSteps
from .gradient_sync import GradientSync


class SharedSteps(CalledSteps):
    """Handles the events of a training's communication."""

    def reset(self) -> None:
        super().reset()
        self._gradient_sync = GradientSync(self, self.gradient_came)
        self._waiting = 0  # depth of nested waits for other processes
        self._borders: list[Any] = []  # the clock's timestamps in a call of collectives

    @event("gradients")
    def gradient_came(self) -> bool:
        """Note a gradient, on a GPU on autograd's thread, for which the one that trains waits."""
        if self._backward_depth:
            self._mark("backward")
        return False

    @event("communication")
    def wait_begins(self) -> bool:
        if not self.mode.is_timed or (get_ident() != self._thread and not self._backward_depth):
            return False
        self._waiting += 1
        if self._waiting == 1:
            self._phases.cut()
            self._mark("communication")
        return True

    @event("communication")
    def wait_ends(self) -> bool:
        self._waiting -= 1
        if self._waiting == 0:
            self._mark("backward" if self._backward_depth else self._phases.phase)
        return False

    @event("communication")
    def collectives_begin(self) -> bool:
        is_looked_at = self.mode.is_timed and not self.mode.is_skipping
        return is_looked_at and (get_ident() == self._thread or self._backward_depth > 0)

    @event("communication")
    def collectives_are_timed(self) -> bool:
        self._borders = []
        return self.clock is not None and self.clock.times_collectives

    @event("communication")
    def collective_border(self) -> bool:
        assert self.clock is not None
        self._borders.append(self.clock.timestamp())
        return False

    @event("communication")
    def collectives_end(self, moved: list[BytesMoved] | None) -> bool:
        tally, borders, self._borders = self._tally, self._borders, []
        tally.moved = together((tally.moved, *([None] if moved is None else moved)))
        if moved is None or (moved and len(borders) != len(moved) + 1):
            tally.borders = None
        elif moved and tally.borders is not None:
            tally.borders.append(borders)
        return False
