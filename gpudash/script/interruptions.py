"""Detects evaluation and checkpoints between the steps of a training.

Evaluation begins with a call of the model that cannot train, or a batch of a loader whose batches
no backward pass has followed. It lasts until the next training call. In reinforcement learning each
step may begin with a call without gradients. So such a call in two rounds in a row is part of the
step. In a notebook nothing trains from the end of a cell until another one does.
"""

from collections.abc import Hashable

from ..protocol.training import Aside


class Interruptions:
    """Follows what happens between steps; `why` names the aside in progress, if any."""

    def __init__(self) -> None:
        self.why: Aside | None = None
        self.ended_by_call = False
        """The model was called last, so the aside ends with the next training call."""
        self.is_between = False
        """Neither a training call nor a backward pass has come since the newest step."""
        self._was_called = False  # in this round, without training
        self._is_usual = False  # … and in the round before
        self._trained_on: set[Hashable] = set()  # loaders
        self._fetched_from: set[Hashable] = set()  # in this round
        self._doubted: set[Hashable] = set()  # once counted as evaluation
        self.is_foreign = False
        """The newest batch is of a loader that no backward pass has followed."""

    def border(self) -> None:
        self.is_between = True
        self._is_usual, self._was_called, self.is_foreign = self._was_called, False, False
        self._fetched_from.clear()

    def fetches(self, loader: Hashable) -> bool:
        """Return whether an aside begins with this request for a batch."""
        self.ended_by_call = False
        if self.why is None and not self.is_foreign and loader in self._trained_on:
            self._fetched_from.add(loader)
            return False
        again = loader in self._fetched_from
        foreign = bool(self._trained_on) and loader not in self._trained_on
        evaluated = again if foreign else self._was_evaluated()
        begins = evaluated and self._begins("evaluation")
        if not foreign and self.why is not None:
            self._fetched_from.clear()  # these batches were evaluated
        self.is_foreign = foreign
        self._fetched_from.add(loader)
        return begins

    def exhausts(self, loader: Hashable) -> None:
        self._fetched_from.discard(loader)

    def calls(self) -> bool:
        """Return whether an aside begins with this call of the model, which cannot train."""
        if self.is_between:
            self._was_called = True
        begins = not self._is_usual and self._begins("evaluation")
        if self.why is not None:
            self._fetched_from.clear()
            self.ended_by_call = True
        return begins

    def saves(self) -> bool:
        """Return whether an aside begins with the file that is being saved."""
        self.ended_by_call = False
        if self.why is not None:
            self._fetched_from.clear()  # these batches were evaluated
            self.is_foreign = False
        return self._begins("checkpoint")

    def saved(self) -> None:
        self.why = None

    def rests(self) -> None:
        """Note that a notebook's cell has ended, perhaps within a step: that step never ends."""
        self.border()
        self.why, self.ended_by_call = "idle", True

    def trains(self) -> None:
        self.is_between, self.is_foreign, self.why = False, False, None

    def learns(self) -> None:
        if not self._fetched_from <= self._trained_on:
            self._trained_on |= self._fetched_from
        if self.is_between or self.is_foreign:
            self.trains()

    def is_trained_on(self, loader: Hashable) -> bool:
        """Return whether a backward pass has followed this loader's batches."""
        return loader in self._trained_on

    def _was_evaluated(self) -> bool:
        """Return False if batches of these loaders came in this order before: both make a step."""
        if not self.is_foreign or self.why is not None:
            return False
        doubted = self._fetched_from - self._trained_on
        if doubted and doubted <= self._doubted:
            return False
        self._doubted |= doubted
        return True

    def _begins(self, why: Aside) -> bool:
        if not self.is_between or self.why == why:
            return False
        self.why = why
        return True
