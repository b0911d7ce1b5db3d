"""What a step has had so far: its batches, waits, calls, backward passes and its loss."""

from torch import Tensor


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

    def add(self, later: "Tally") -> None:
        """Take what came after it."""
        self.backwards += later.backwards
        self.batches += later.batches
        self.calls += later.calls
        self.fetched = _sum(self.fetched, later.fetched)
        self.tokens = _sum(self.tokens, later.tokens)
        self.called = _sum(self.called, later.called)
        self.is_open = later.is_open
        self.data_s += later.data_s
        self.loss = later.loss if later.loss is not None else self.loss

    def fetch(self, samples: int | None, tokens: int | None = None) -> None:
        """Count a batch."""
        self.batches += 1
        self.fetched = _sum(self.fetched, samples)
        self.tokens = _sum(self.tokens, tokens)

    def call(self, samples: int | None) -> None:
        """Count the samples of a training call."""
        self.called = _sum(self.called, samples)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
