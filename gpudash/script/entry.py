"""Begins in a user's process: `sitecustomize` calls `install` once torch has been imported."""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TypeAlias

from ..instrument import patching, private_torch, stack_server
from ..levers.script_levers import ScriptLevers
from ..rendezvous import Rendezvous, of_environment
from ..script import explicit
from .driver import Driver
from .grammar import PHASES
from .patches import patch
from .tracker import Tracker

Hook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def install() -> None:
    """Do nothing outside of a `gpudash run`.

    Raises NotImplementedError where this torch lacks what is needed.
    """
    rendezvous = of_environment()
    if rendezvous is not None:
        private_torch.check()
        sys.excepthook = without_our_interrupt(rendezvous, sys.excepthook)
        start(rendezvous)


def without_our_interrupt(rendezvous: Rendezvous, hook: Hook) -> Hook:
    """Hide the traceback of the interrupt with which gpudash ends a script."""

    def filtered(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if not (issubclass(kind, KeyboardInterrupt) and rendezvous.is_ending):
            hook(kind, error, traceback)

    return filtered


class Hooks:
    """What follows a training in this process."""

    def __init__(self, driver: Driver, tracker: Tracker) -> None:
        self._driver, self._tracker = driver, tracker
        self.cell_begins = partial(tracker.tell, "cell: begins")
        self.cell_ends = partial(tracker.tell, "cell: ends")

    def told(self) -> tuple[int, int]:
        """Report all steps; return the number of the training, and how many are reported."""
        self._tracker.tell("cell: flush")
        steps = 0 if self._driver.is_off else self._tracker.meter.steps
        return self._driver.trainings, steps

    def look(self) -> None:
        """Serve a dashboard where no step does it, on the thread that trains or has trained."""
        if self._tracker.is_here:
            self._driver.look()

    def end(self) -> None:
        """Put everything back as it was without gpudash. Call on the main thread, between steps."""
        self.cell_ends()
        self._driver.end()
        self._tracker.end()
        patching.undo()
        explicit.tell = None
        stack_server.end()


def start(rendezvous: Rendezvous) -> Hooks:
    driver = Driver(rendezvous, PHASES, ScriptLevers)
    driver.tracker = tracker = Tracker(driver)
    tracker.failed = driver.failed
    patching.after_fork(driver.forget)
    patch(tracker)
    explicit.tell = tracker.tell
    with suppress(OSError):  # for example on a full disk
        stack_server.answer(rendezvous)
    return Hooks(driver, tracker)
