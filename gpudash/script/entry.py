"""Begins in a user's process: `sitecustomize` calls `install` once torch has been imported.

It creates the tracker, the driver and the levers, once in a process.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeAlias

from ..instrument import private_torch, stack_server
from ..levers.script_levers import ScriptLevers
from ..rendezvous import Rendezvous, of_environment
from ..script import explicit
from .driver import Driver
from .observer import PHASES
from .patches import patch
from .tracker import Tracker

Hook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def install() -> None:
    """Start looking for a training, if this process belongs to a `gpudash run`.

    Raises NotImplementedError where this torch lacks what is needed.
    """
    rendezvous = of_environment()
    if rendezvous is not None:
        private_torch.check()
        sys.excepthook = without_our_interrupt(rendezvous, sys.excepthook)
        start(rendezvous)


def without_our_interrupt(rendezvous: Rendezvous, hook: Hook) -> Hook:
    """Return a hook that hides the traceback of the interrupt with which gpudash ends a script."""

    def filtered(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if not (issubclass(kind, KeyboardInterrupt) and rendezvous.is_ending):
            hook(kind, error, traceback)

    return filtered


def start(rendezvous: Rendezvous) -> None:
    """Look for a training in this process, and report it through the run's directory."""
    driver = Driver(rendezvous, PHASES, ScriptLevers)
    driver.tracker = tracker = Tracker(driver)
    tracker.failed = driver.failed
    os.register_at_fork(after_in_child=driver.forget)
    patch(tracker)
    explicit.listener = tracker
    with suppress(OSError):  # for example on a full disk
        stack_server.answer(rendezvous)
