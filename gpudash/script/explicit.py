"""Steps that the script declares. This imports nothing, so that importing it is free."""

from collections.abc import Callable
from typing import SupportsIndex, TypeAlias, TypeVar

StepT = TypeVar("StepT", bound="step")
Count: TypeAlias = SupportsIndex | None
"""A whole number; None where it is not known."""


tell: Callable[..., object] | None = None
"""Set when torch is hooked."""


def begin() -> None:
    if tell is not None:
        tell("gpudash.step: begins")


def end(samples: Count = None, tokens: Count = None, *, counts: bool = True) -> None:
    """Declare the end of a step, which failed if `counts` is False."""
    if tell is not None:
        tell("gpudash.step: ends", samples, tokens, counts)


class step:  # noqa: N801  # reads as `gpudash.step()`
    """One training step, measured on the device, from the end of the block before to its own end.

    What lies between two blocks is own code of the second one's step, unless it is an evaluation, a
    checkpoint or a pause. `samples` and `tokens` are what the step trains on, if known. They can
    also be set inside the block. Without them, samples and tokens are counted from the batches. Of
    nested steps the outermost counts. A step left by an exception does not count, and its time is
    the next one's. Without `gpudash run` this does nothing.
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
