"""Counts within a step: batches, waits, calls, backward passes, and the loss."""

from typing import Any, TypeVar

from torch import Tensor

from ..instrument.collectives import BytesMoved, together
from ..levers.training_objects import Root

NumberT = TypeVar("NumberT", int, float)
OF_BATCHES = (
    *("batches", "data_cpu_s", "data_s", "fetched"),
    *("newest", "newest_tokens", "padding", "start_s", "tokens"),
)
SUMMED = (
    *("acted_s", "backwards", "batches", "called", "calls", "coded_s", "data_cpu_s", "data_s"),
    *("fetched", "learned", "padding", "start_s", "tokens"),
)


class StepCounts:
    """The counts of the step in progress."""

    __slots__ = (
        "acted_s",
        "asked",
        "backwards",
        "batches",
        "borders",
        "called",
        "calls",
        "coded_s",
        "data_cpu_s",
        "data_s",
        "fetched",
        "is_open",
        "learned",
        "loss",
        "moved",
        "newest",
        "newest_tokens",
        "padding",
        "start_s",
        "tokens",
        "updates",
    )

    def __init__(self) -> None:
        self.backwards = 0
        self.batches = 0
        self.calls = 0
        """Calls of the models, training or not."""
        self.fetched: int | None = 0
        """Samples of the step's batches; None if one batch has no known size."""
        self.newest = 0
        """Samples of the newest batch whose size is known."""
        self.newest_tokens = 0
        """Tokens of the newest batch."""
        self.tokens: int | None = 0
        """Tokens of the step's batches; None likewise."""
        self.padding: int | None = 0
        """Padding beside them; None likewise."""
        self.called: int | None = 0
        """Samples of its training calls, counted once for each backward pass."""
        self.learned: int | None = 0
        """Samples of its backward passes since the newest update; None if not known."""
        self.updates: list[int | None] = []
        """The same of those before each of its updates."""
        self.is_open = True
        """No training call has come since the newest backward pass."""
        self.data_s = 0.0
        """Seconds that it waited for batches, …"""
        self.data_cpu_s = 0.0
        """… of these on the CPU, in each wait: where workers deliver several batches at once, most
        are there when they are asked for, and no wait stands for the others …"""
        self.start_s = 0.0
        """… and for the start of an epoch's loader workers and its sampler's first draws."""
        self.acted_s = 0.0
        """Seconds in rollouts."""
        self.coded_s = 0.0
        """Seconds in the script's own code, of a step that is measured in full."""
        self.loss: Tensor | None = None
        self.asked: Root | None = None
        """The model that was called last without gradients, with a batch and before it trained."""
        self.moved: BytesMoved | None = BytesMoved()
        """By collectives that are counted at their calls; None if one is not known."""
        self.borders: list[list[Any]] | None = []
        """The clock's timestamps of these collectives, by call; None if one call has none."""

    def of_batches(self) -> "StepCounts":
        counts = StepCounts()
        for name in OF_BATCHES:
            setattr(counts, name, getattr(self, name))
        return counts

    def begun(self, steps: int) -> "StepCounts":
        """Return the counts of the step that has begun after so many steps with a batch each."""
        begun = StepCounts()
        if self.batches == steps + 1:
            begun.batches, begun.fetched, begun.newest = 1, self.newest, self.newest
            begun.tokens = begun.newest_tokens = self.newest_tokens
        return begun

    def ended(self, steps: int) -> "StepCounts":
        """Return the counts of these steps, with a batch each, without the step that has begun."""
        ended = self.of_batches()
        ended.fetched = ended.tokens = ended.called = None
        if self.batches == steps + 1:
            ended.fetched = total(self.fetched, -self.newest)
            ended.tokens = total(self.tokens, -self.newest_tokens)
        return ended

    def add(self, later: "StepCounts") -> None:
        for name in SUMMED:
            setattr(self, name, total(getattr(self, name), getattr(later, name)))
        self.updates += later.updates
        self.is_open = later.is_open
        self.loss = later.loss if later.loss is not None else self.loss
        self.moved = together((self.moved, later.moved))
        if self.borders is not None:
            self.borders = None if later.borders is None else self.borders + later.borders


def total(one: NumberT | None, other: NumberT | None) -> NumberT | None:
    """Return None if one of the two is not known."""
    # called for each batch: `statistics.total` makes a list, and takes seven times as long
    return None if one is None or other is None else one + other


ODD = 3
"""After so many unusual steps in a row, each unlike the one before, the number is taken to vary."""


class Backwards:
    """Compares each step's number with the usual one; the last step of an epoch may have fewer."""

    def __init__(self) -> None:
        self.usual: int | None = None
        """Backward passes a step; None while not known, or where it varies."""
        self._newest = 0
        self._odd = 0

    def take(self, number: int) -> bool:
        """Return whether `usual` has changed."""
        was, newest, self._newest = self.usual, self._newest, number
        if number == was:
            self._odd = 0
            return False
        if self._odd >= ODD:
            return False
        if not newest or number == newest:
            self._odd, self.usual = 0, number
        else:
            self._odd += 1
            self.usual = None if self._odd >= ODD else was
        return self.usual != was
