"""Follows the waits for other processes, and what collectives move."""

from threading import get_ident
from typing import Any

from ..instrument.collectives import Moved, together
from ..instrument.guard import event
from .calls import CalledSteps
from .gradient_sync import GradientSync


class SharedSteps(CalledSteps):
    """Handles the events of a training's communication."""

    def reset(self) -> None:
        """Forget the training found so far."""
        super().reset()
        self._gradient_sync = GradientSync(self, self.gradient_came)
        self._waiting = 0  # depth of nested waits for other processes
        self._borders: list[Any] = []  # the clock's timestamps in a call of collectives

    @event("gradients")
    def gradient_came(self) -> bool:
        """Note a gradient that may be the last of the pass, which is sent next.

        On a GPU this runs on autograd's thread, while the thread that trains waits for it.
        """
        if self._backward_depth:
            self._mark("backward")
        return False

    @event("communication")
    def wait_begins(self) -> bool:
        """Note that the computation is about to wait for other processes."""
        if not self.mode.is_timed or (get_ident() != self._thread and not self._backward_depth):
            return False
        self._waiting += 1
        if self._waiting == 1:
            self._phases.cut()
            self._mark("communication")
        return True

    @event("communication")
    def wait_ends(self) -> bool:
        """Note that the wait is over."""
        self._waiting -= 1
        if self._waiting == 0:
            self._mark("backward" if self._backward_depth else self._phases.phase)
        return False

    @event("communication")
    def collectives_begin(self) -> bool:
        """Note a call of collectives that is about to begin; return whether to report its end."""
        is_looked_at = self.mode.is_timed and not self.mode.is_skipping
        return is_looked_at and (get_ident() == self._thread or self._backward_depth > 0)

    @event("communication")
    def collectives_are_timed(self) -> bool:
        """Return whether to report the begin and the ends of the collectives of this call."""
        self._borders = []
        return self.clock is not None and self.clock.times_collectives

    @event("communication")
    def collective_border(self) -> bool:
        """Note on the current stream that the first collective begins, or that one ends."""
        assert self.clock is not None
        self._borders.append(self.clock.timestamp())
        return False

    @event("communication")
    def collectives_end(self, moved: list[Moved] | None) -> bool:
        """Add what each collective of the call moves; None: not known."""
        tally, borders, self._borders = self._tally, self._borders, []
        tally.moved = together((tally.moved, *([None] if moved is None else moved)))
        if moved is None or (moved and len(borders) != len(moved) + 1):
            tally.borders = None
        elif moved and tally.borders is not None:
            tally.borders.append(borders)
        return False
