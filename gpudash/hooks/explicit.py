"""Steps that the script itself declares: by `with gpudash.step():`, or by a framework's callback.

Outside of a run, or before torch is imported, nobody listens. Imports nothing: that costs nothing.
"""

from typing import Protocol, Self, SupportsIndex, TypeAlias

Count: TypeAlias = SupportsIndex | None
"""A whole number; None where it is not known."""


class Listener(Protocol):
    """Who is told: the tracker."""

    def step_begins(self) -> bool:
        """Take that a step begins, maybe inside of one."""

    def step_ends(self, samples: Count, tokens: Count, counts: bool) -> bool:  # noqa: FBT001
        """Take that it has ended, and what it trained on; it may be one that does not count."""


listener: Listener | None = None
"""Set when torch is hooked."""


def begin() -> None:
    """Say that a step of the training begins here."""
    if listener is not None:
        listener.step_begins()


def end(samples: Count = None, tokens: Count = None, *, counts: bool = True) -> None:
    """Say that it has ended; False for `counts` if it failed."""
    if listener is not None:
        listener.step_ends(samples, tokens, counts)


class step:  # noqa: N801  # reads as `gpudash.step()`
    """One step of the training: it begins and ends with the block, on the device.

    `samples` and `tokens` are what it trains on, if they are known; they can also be set inside
    the block. Samples that are not given are counted from the batches. Of nested steps the
    outermost counts. A step that an exception leaves does not count. Outside of a `gpudash run`
    this does nothing.
    """

    __slots__ = ("samples", "tokens")

    def __init__(self, *, samples: Count = None, tokens: Count = None) -> None:
        self.samples = samples
        self.tokens = tokens

    def __enter__(self) -> Self:
        begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        end(self.samples, self.tokens, counts=kind is None)
