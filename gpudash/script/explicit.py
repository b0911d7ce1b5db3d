"""Steps that the script declares, with `with gpudash.step():` or through a framework's callback.

Without `gpudash run`, or before torch is imported, this does nothing. It imports nothing, so that
importing it is free.
"""

from typing import Protocol, SupportsIndex, TypeAlias, TypeVar

StepT = TypeVar("StepT", bound="step")
Count: TypeAlias = SupportsIndex | None
"""A whole number; None where it is not known."""


class StepListener(Protocol):
    """What receives the declared steps: the tracker."""

    def step_begins(self) -> bool:
        """Note that a step begins, maybe inside another one."""

    def step_ends(self, samples: Count, tokens: Count, counts: bool) -> bool:  # noqa: FBT001
        """Note that a step has ended; `counts` is False if it failed."""


listener: StepListener | None = None
"""Set when torch is hooked."""


def begin() -> None:
    """Declare that a training step begins."""
    if listener is not None:
        listener.step_begins()


def end(samples: Count = None, tokens: Count = None, *, counts: bool = True) -> None:
    """Declare that the training step has ended; `counts` is False if it failed."""
    if listener is not None:
        listener.step_ends(samples, tokens, counts)


class step:  # noqa: N801  # reads as `gpudash.step()`
    """One training step, measured from the begin of the block to its end, on the device.

    `samples` and `tokens` are what the step trains on, if known. They can also be set inside the
    block. Without them, samples and tokens are counted from the batches. Of nested steps the
    outermost counts. A step left by an exception does not count. Without `gpudash run` this does
    nothing.
    """

    __slots__ = ("samples", "tokens")

    def __init__(self, *, samples: Count = None, tokens: Count = None) -> None:
        self.samples = samples
        self.tokens = tokens

    def __enter__(self: StepT) -> StepT:  # noqa: PYI019  # Python 3.10 has no Self
        begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        end(self.samples, self.tokens, counts=kind is None)
