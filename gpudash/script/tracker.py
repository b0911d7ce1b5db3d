"""Finds the steps and phases of a training that was not written for gpudash.

It follows the one thread that trains, and ignores what gpudash itself tries out between steps. If
another thread trains too, the findings say so. A failure here turns all hooks off.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any

from ..instrument.collectives import Collectives
from ..instrument.guard import is_from_handler, never_destroy
from ..instrument.patching import uncompiled
from . import batches, calls, communication, declared, passes, pauses, updates
from .boundaries import UNWATCHED
from .follower import NOBODY
from .grammar import Observer
from .meter import no_switch
from .steps import Handlers, Steps

HANDLERS: Handlers = {
    **batches.HANDLERS,
    **calls.HANDLERS,
    **communication.HANDLERS,
    **declared.HANDLERS,
    **passes.HANDLERS,
    **pauses.HANDLERS,
    **updates.HANDLERS,
}
"""By event; before the colon stands what a failure names."""
HERE = frozenset(
    {
        "copy: begins",
        "forward: begins",
        "eval: begins",
        "gpudash.step: ends",
        "torch.save: begins",
        "cell: begins",
        "cell: flush",
        "cell: ends",
        "CUDA graph: replay begins",
    }
)
"""Events of the thread that trains; on another one they are nothing."""


class Tracker:
    """Takes the events of the script, and hands each to what handles it."""

    def __init__(self, observer: Observer) -> None:
        self.failed: Callable[[str, BaseException], None] = lambda _what, _error: None
        """Called with the name of the hook that failed."""
        self._steps = Steps(observer, self.tell)
        self.reset = self._steps.reset
        self.finish = self._steps.finish
        self.meter = self._steps.meter

    @uncompiled
    def tell(self, event: str, *args: Any) -> bool | None:
        """Take an event. A begin returns whether to report its end."""
        try:
            steps = self._steps
            if event in HERE and get_ident() != steps.follower.thread:
                return False
            if steps.is_saved:
                steps.go_on()
            return HANDLERS[event](steps, *args)
        except Exception as error:  # no exception of ours may reach the script
            if is_from_handler(error):
                raise
            self._fail(event.partition(":")[0], error)
            return False

    def _fail(self, what: str, error: BaseException) -> None:
        self._steps.give_up()
        with suppress(Exception):
            self.failed(what, error)

    @property
    def is_here(self) -> bool:
        return self._steps.follower.is_here

    def collectives(self) -> Collectives:
        clock = self.meter.clock
        return self._steps.sync.collectives(None if clock is None else clock.collective_times)

    def forget(self) -> None:
        """Drop, in a forked child, what belongs to the parent."""
        never_destroy(*vars(self._steps).values(), *vars(self.meter).values())
        self.reset()

    def end(self) -> None:
        """Follow nothing any more. A hook that someone has kept does nothing."""
        self._steps.findings.end()
        self.reset()
        self.meter.switch_backward = no_switch  # a child that is forked later gets no hook back
        self._steps.follower.thread, self.meter.mode = NOBODY, UNWATCHED
