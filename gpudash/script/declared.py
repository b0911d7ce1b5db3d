"""Steps that the script declares itself. They count whatever its optimizers do."""

import time
from operator import index
from threading import get_ident

from ..instrument.guard import event
from .ends import EndedSteps
from .explicit import Count
from .step_counts import StepCounts
from .steps import NOBODY


class DeclaredSteps(EndedSteps):
    """Handles the events of `gpudash.step`. After the first one, no other steps are looked for."""

    def reset(self) -> None:
        super().reset()
        self._depth = 0  # how deep in a declared step

    @event("gpudash.step")
    def step_begins(self) -> bool:
        declares = self._boundaries.state == "declared"
        if get_ident() != self._thread and (declares or self._thread == NOBODY):
            return False
        self._depth += 1
        if self._depth > 1:
            return False
        if not declares:
            self._declare()
        self._optimizer_depth = self._backward_depth = 0  # an exception may have left these above 0
        if self._asides.why is not None:
            if not self._has_waited:
                self._restart(self._held)
            self._observer.aside(None)
        self._asides.trains()
        self._enter("begins")
        if self.clock is None:
            now_s, waited_s = time.monotonic(), self._tally.data_s
            self.first_began_s = min(now_s - waited_s, self._asked_s) if waited_s else now_s
        return False

    @event("gpudash.step")
    def step_ends(self, samples: Count, tokens: Count, counts: bool) -> bool:  # noqa: FBT001
        """Close the step, unless it failed: then `counts` is False."""
        if get_ident() != self._thread or not self._depth:
            return False
        self._depth -= 1
        if self._depth:
            return False
        if counts:
            self._close(_whole(samples), _whole(tokens))
        else:
            self._asides.border()
            self._tally = StepCounts()
        return False

    def _declare(self) -> None:
        self._no_more_comes()
        self._boundaries.feed("declares")
        self._thread = get_ident()
        self._stop_skipping()
        self._tally = self._tally.of_batches() if self._has_waited else StepCounts()
        self._findings.is_news = True

    @property
    def _has_waited(self) -> bool:
        """Most loops wait for a batch before they declare its step, so the wait is part of it."""
        tally = self._tally
        return tally.batches > 0 and not (tally.calls or tally.backwards)


def _whole(count: Count) -> int | None:
    return None if count is None else index(count)
