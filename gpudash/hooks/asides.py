"""What a training does between its steps, and what of it is no part of them.

Evaluation: before the first training call of a step, a call of the model that cannot train, or
batches of a loader that no backward pass has followed so far, nor follows now. A script that begins
each step with such a call, as one that acts before it learns, evaluates nothing: twice in a row is
a habit. A checkpoint: a `torch.save` there, and no longer. Any other aside lasts until the
training calls again.
"""

from collections.abc import Hashable

from gpudash.protocol import Aside


class Asides:
    """Told of what happens between the steps; `why` is what the training does instead."""

    def __init__(self) -> None:
        self.why: Aside | None = None
        self.ended_by_call = False
        """Nothing says when it ended but the next training call: the model's was its last."""
        self.is_between = False
        """Neither a training call nor a backward pass has come since the newest step."""
        self._was_called = False  # without training, in this round
        self._is_usual = False  # the round before began so too
        self._trained_on: set[Hashable] = set()  # loaders
        self._fetched_from: set[Hashable] = set()  # in this round
        self._doubted: set[Hashable] = set()  # taken for evaluated, by one batch before another's
        self._foreign = False  # the newest batch came from a loader that is not known to train

    def border(self) -> None:
        """Take that a step is over."""
        self.is_between = True
        self._is_usual, self._was_called, self._foreign = self._was_called, False, False
        self._fetched_from.clear()

    def fetches(self, loader: Hashable) -> bool:
        """Take that a batch is asked for; return whether an aside begins with it."""
        self.ended_by_call = False
        if self.why is None and not self._foreign and loader in self._trained_on:
            self._fetched_from.add(loader)
            return False
        again = loader in self._fetched_from
        foreign = bool(self._trained_on) and loader not in self._trained_on
        evaluated = again if foreign else self._was_evaluated()
        begins = evaluated and self._begins("evaluation")
        if not foreign and self.why is not None:
            self._fetched_from.clear()  # what came before was evaluated
        self._foreign = foreign
        self._fetched_from.add(loader)
        return begins

    def exhausts(self, loader: Hashable) -> None:
        """Take that there was no batch any more."""
        self._fetched_from.discard(loader)

    def calls(self) -> bool:
        """Take a call of the model that cannot train; return whether an aside begins with it."""
        if self.is_between:
            self._was_called = True
        begins = not self._is_usual and self._begins("evaluation")
        if self.why is not None:
            self._fetched_from.clear()
            self.ended_by_call = True
        return begins

    def saves(self) -> bool:
        """Take that a file is saved; return whether an aside begins with it."""
        self.ended_by_call = False
        if self.why is not None:
            self._fetched_from.clear()  # what came before was evaluated
            self._foreign = False
        return self._begins("checkpoint")

    def saved(self) -> None:
        """Take that it is saved: nothing says so far what comes next."""
        self.why = None

    def trains(self) -> None:
        """Take a training call, or an optimizer's step: an aside ends with it."""
        self.is_between, self._foreign, self.why = False, False, None

    def learns(self) -> None:
        """Take a backward pass: the batches before it are trained on."""
        if not self._fetched_from <= self._trained_on:
            self._trained_on |= self._fetched_from
        if self.is_between or self._foreign:
            self.trains()

    def is_trained_on(self, loader: Hashable) -> bool:
        """Return whether a backward pass has followed this loader's batches."""
        return loader in self._trained_on

    def _was_evaluated(self) -> bool:
        """Return whether the newest batch was, now that one to train on comes.

        Where the same loader's came so before, both make a step.
        """
        if not self._foreign or self.why is not None:
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
