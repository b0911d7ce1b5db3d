"""Steps that the script itself declares: where they begin and end, whatever its optimizers do."""

from operator import index
from threading import get_ident

from gpudash.hooks.event import event
from gpudash.hooks.explicit import Count
from gpudash.hooks.steps import NOBODY, Steps, nothing
from gpudash.hooks.tally import Tally
from gpudash.instrument.collectives import Moved


class DeclaredSteps(Steps):
    """Told of them by `gpudash.step`; from the first one on, no other is a step."""

    def begin_anew(self) -> None:
        """Know nothing of a training."""
        super().begin_anew()
        self._depth = 0  # how deep in a declared step

    @event("gpudash.step")
    def step_begins(self) -> bool:
        """Take that the script says: a step begins. From the first one on, no other is found."""
        if get_ident() != self._thread and (self._known.declares or self._thread == NOBODY):
            return False
        self._depth += 1
        if self._depth > 1:
            return False
        if not self._known.declares:
            self._declare()
        self._optimizing = self._backing = 0  # what an exception has left
        if self._asides.why is not None:
            self._observer.aside(None)
        self._asides.trains()
        if not self._has_waited:
            self._tally.calls = self._tally.backwards = 0
            self._tally.data_s, self._tally.moved = 0.0, Moved()
            self._retime()
        else:
            self._mark("your_code")
        return False

    @event("gpudash.step")
    def step_ends(self, samples: Count, tokens: Count, counts: bool) -> bool:  # noqa: FBT001
        """Take that the script says: it has ended; one that failed does not count."""
        if get_ident() != self._thread or not self._depth:
            return False
        self._depth -= 1
        if self._depth:
            return False
        if counts:
            self._close(_whole(samples), _whole(tokens))
        else:
            self._asides.border()
            self._tally, self._mark = Tally(), nothing
        return False

    def _declare(self) -> None:
        """Take it from the script from now on where steps begin and end."""
        if self._is_split:
            self._close_at_split()
        self._tally = Tally()
        self._thread, self._known.declares, self._known.by_backward = get_ident(), True, False
        self._look_up()
        self._known.is_news = True

    @property
    def _is_within(self) -> bool:
        """Whether this is part of a step, as far as the script says; else it may be."""
        return self._depth > 0 or not self._known.declares

    @property
    def _has_waited(self) -> bool:
        """Whether batches have come since the newest step and nothing else has.

        Most loops wait for a batch before they declare its step, which that is part of.
        """
        tally = self._tally
        return tally.batches > 0 and not (tally.calls or tally.backwards)


def _whole(count: Count) -> int | None:
    return None if count is None else index(count)
