"""What a step has had so far: its batches, waits, calls, backward passes and its loss."""

from torch import Tensor

from gpudash.instrument.collectives import Moved, together


class Tally:
    """Counted up while the step is in progress."""

    __slots__ = (
        "backwards",
        "batches",
        "called",
        "calls",
        "data_s",
        "fetched",
        "is_open",
        "loss",
        "moved",
        "tokens",
    )

    def __init__(self) -> None:
        self.backwards = 0
        self.batches = 0
        self.calls = 0
        """Of the models, training or not."""
        self.fetched: int | None = 0
        """Samples of its batches; None where a batch did not tell."""
        self.tokens: int | None = 0
        """Of its batches; None likewise."""
        self.called: int | None = 0
        """Samples of its training calls, one for each backward pass."""
        self.is_open = True
        """No training call has come since the newest backward pass."""
        self.data_s = 0.0
        self.loss: Tensor | None = None
        self.moved: Moved | None = Moved()
        """By collectives that are counted as they are called; None where one is not known."""

    def add(self, later: "Tally") -> None:
        """Take what came after it."""
        self.backwards += later.backwards
        self.batches += later.batches
        self.calls += later.calls
        self.fetched = total(self.fetched, later.fetched)
        self.tokens = total(self.tokens, later.tokens)
        self.called = total(self.called, later.called)
        self.is_open = later.is_open
        self.data_s += later.data_s
        self.loss = later.loss if later.loss is not None else self.loss
        self.moved = together((self.moved, later.moved))


def total(one: int | None, other: int | None) -> int | None:
    """Return the sum; None where one of them is not known."""
    # for each batch, which `statistics.total` would make a list for: seven times as slow
    return None if one is None or other is None else one + other
