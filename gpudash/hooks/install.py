"""The hooks' way in: what the injected `sitecustomize` calls once torch has been imported."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from gpudash.hooks.start import start
from gpudash.rendezvous import Rendezvous, of_environment

Hook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def install() -> None:
    """Look for a training in this process, if it is of a run."""
    rendezvous = of_environment()
    if rendezvous is not None:
        sys.excepthook = without_our_interrupt(rendezvous, sys.excepthook)
        start(rendezvous)


def without_our_interrupt(rendezvous: Rendezvous, hook: Hook) -> Hook:
    """Return the hook without the traceback of an interrupt that ended a script as planned."""

    def told(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if not (issubclass(kind, KeyboardInterrupt) and rendezvous.is_ending):
            hook(kind, error, traceback)

    return told
