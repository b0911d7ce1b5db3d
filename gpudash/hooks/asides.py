"""What a training does between its steps, and what of it is no part of them.

Evaluation: before the first training call of a step, a call of the model that cannot train, or a
batch of a loader that no backward pass has followed so far. A script that begins each step with
such a call, as one that acts before it learns, evaluates nothing: twice in a row is a habit.
A checkpoint: a `torch.save` there. An aside lasts until the training calls again.
"""

from collections.abc import Hashable

from gpudash.protocol import Aside


class Asides:
    """Told of what happens between the steps; `why` is what the training does instead."""

    def __init__(self) -> None:
        self.why: Aside | None = None
        self._is_between = False  # neither a training call nor a backward since the newest step
        self._was_called = False  # without training, in this round
        self._is_usual = False  # the round before began so too
        self._trained_on: set[Hashable] = set()  # loaders
        self._fetched_from: set[Hashable] = set()  # in this round

    def border(self) -> None:
        """A step is over."""
        self._is_between = True
        self._is_usual, self._was_called = self._was_called, False
        self._fetched_from.clear()

    def fetches(self, loader: Hashable) -> bool:
        """Take that a batch is asked for; return whether an aside begins with it."""
        if self.why is not None and loader in self._trained_on:
            self._fetched_from.clear()  # what came before was evaluated
        self._fetched_from.add(loader)
        foreign = bool(self._trained_on) and loader not in self._trained_on
        return foreign and self._begins("evaluation")

    def exhausts(self, loader: Hashable) -> None:
        """Take that there was no batch any more."""
        self._fetched_from.discard(loader)

    def calls(self) -> bool:
        """Take a call of the model that cannot train; return whether an aside begins with it."""
        if self._is_between:
            self._was_called = True
        begins = not self._is_usual and self._begins("evaluation")
        if self.why is not None:
            self._fetched_from.clear()
        return begins

    def saves(self) -> bool:
        """Take that a file is saved; return whether an aside begins with it."""
        return self._begins("checkpoint")

    def trains(self) -> bool:
        """Take a training call, or an optimizer's step; return whether an aside ends with it."""
        self._is_between = False
        was, self.why = self.why, None
        return was is not None

    def learns(self) -> bool:
        """Take a backward pass; return whether an aside ends with it, and whose batches train."""
        if self._fetched_from:
            self._trained_on |= self._fetched_from
        return self.trains()

    def is_trained_on(self, loader: Hashable) -> bool:
        """Return whether a backward pass has followed this loader's batches."""
        return loader in self._trained_on

    def _begins(self, why: Aside) -> bool:
        if not self._is_between or self.why == why:
            return False
        self.why = why
        return True
