"""The entry point of the hooks. `sitecustomize` calls it once torch has been imported."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from gpudash.hooks.start import start
from gpudash.rendezvous import Rendezvous, of_environment

Hook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def install() -> None:
    """Start looking for a training, if this process belongs to a `gpudash run`."""
    rendezvous = of_environment()
    if rendezvous is not None:
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
