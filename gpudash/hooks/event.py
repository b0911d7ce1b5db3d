"""What the tracker is told of the script: nothing that fails meanwhile reaches the script."""

from collections.abc import Callable
from functools import wraps
from typing import Protocol, TypeAlias, TypeVar, TypeVarTuple

from gpudash.hooks.signals import is_from_handler
from gpudash.instrument.uncompiled import uncompiled


class Fails(Protocol):
    """The owner of events."""

    def fail(self, what: str, error: BaseException) -> None:
        """Take that one has failed."""


FailsT = TypeVar("FailsT", bound=Fails)
Ts = TypeVarTuple("Ts")
Event: TypeAlias = Callable[[FailsT, *Ts], bool]


def event(what: str) -> Callable[[Event[FailsT, *Ts]], Event[FailsT, *Ts]]:
    """Make a method an event of the script's: a failure in it turns all hooks off, and is told."""

    def decorate(method: Event[FailsT, *Ts]) -> Event[FailsT, *Ts]:
        @wraps(method)
        def told(self: FailsT, *args: *Ts) -> bool:
            try:
                return method(self, *args)
            except Exception as error:  # none of ours may reach the script
                if is_from_handler(error):
                    raise
                self.fail(what, error)
                return False

        return uncompiled(told)

    return decorate
