"""Wraps the tracker's event handlers, so that no failure in one reaches the script."""

from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeAlias, TypeVar, TypeVarTuple

from gpudash.hooks.signals import is_from_handler
from gpudash.instrument.uncompiled import uncompiled


class Fails(Protocol):
    """The class whose methods are event handlers."""

    def fail(self, what: str, error: BaseException) -> None:
        """Note that a handler has failed."""


FailsT = TypeVar("FailsT", bound=Fails)
Ts = TypeVarTuple("Ts")
Event: TypeAlias = Callable[[FailsT, *Ts], bool]


def event(what: str) -> Callable[[Event[FailsT, *Ts]], Event[FailsT, *Ts]]:
    """Make a method the handler of an event. A failure in it is passed to `fail`."""

    def decorate(method: Event[FailsT, *Ts]) -> Event[FailsT, *Ts]:
        @wraps(method)
        def guarded(self: FailsT, *args: *Ts) -> bool:
            try:
                return method(self, *args)
            except Exception as error:  # no exception of ours may reach the script
                if is_from_handler(error):
                    raise
                self.fail(what, error)
                return False

        return uncompiled(guarded)

    return decorate
