"""Counts plain steps that are timed together, with as little host time as possible.

Each event of such a step takes one call here. Between two calls torch runs a thousand functions of
its own, so hardly any of this code is still in a cache: it costs by its size. Nothing here can
fail. The tracker gets whatever is not plain, and measures steps in full again.
"""

import time
from threading import get_ident
from typing import Any, Protocol
from weakref import ref

from torch import Tensor
from torch.optim import Optimizer

from gpudash.hooks.samples import SEQUENCES
from gpudash.hooks.tally import Tally
from gpudash.instrument.uncompiled import uncompiled


class Counts(Protocol):
    """What the steps are counted in."""

    steps: int
    skipped: int
    next_begun: bool
    fetching: bool


class Counting:
    """The plain steps until the next one that is measured in full."""

    __slots__ = ("_border_at", "_counts", "_due_s", "_iterator", "_optimizer", "_tally", "_thread")

    def __init__(
        self,
        counts: Counts,
        tally: Tally,
        *,
        thread: int | None,
        optimizer: int,
        iterator: ref[Any] | None,
        border_at: int,
        due_s: float,
    ) -> None:
        """Count the steps of a thread, by an optimizer's id and a loader's iterator.

        A step that is `border_at`, or ends at `due_s` or later, is left to the tracker.
        """
        self._counts, self._tally = counts, tally
        self._thread, self._optimizer, self._iterator = thread, optimizer, iterator
        self._border_at, self._due_s = border_at, due_s

    @uncompiled
    def batch_asked(self, iterator: Any) -> float | None:
        """Return the time at which the batch is waited for, in s; None: ask the tracker."""
        if self._iterator is None or self._iterator() is not iterator:
            return None
        counts = self._counts
        if counts.fetching or get_ident() != self._thread:
            return None
        counts.fetching = True
        return time.monotonic()

    @uncompiled
    def batch_arrived(self, batch: Any, asked_s: float) -> bool:
        """Count a list or tuple of tensors; return whether it is one."""
        if type(batch) not in SEQUENCES or not batch or type(batch[0]) is not Tensor:
            return False
        first, tally = batch[0], self._tally
        if not first.dim():
            return False
        tally.data_s += time.monotonic() - asked_s
        tally.batches += 1
        tally.fetched = None if tally.fetched is None else tally.fetched + first.size(0)
        self._counts.next_begun = True
        return True

    @uncompiled
    def backward_begins(self, tensors: Any) -> bool:
        """Note a backward pass, and keep its loss; False: the tracker has to."""
        if type(tensors) is not Tensor or get_ident() != self._thread:
            return False
        tally = self._tally
        self._counts.next_begun = tally.is_open = True
        tally.loss = tensors.detach() if tensors.numel() == 1 else None
        return True

    def optimizer_begins(self, optimizer: Optimizer, *, has_closure: bool) -> bool:
        """Return whether nothing is to be done: the optimizer of all these steps begins."""
        return id(optimizer) == self._optimizer and not has_closure and get_ident() == self._thread

    def optimizer_ends(self) -> bool:
        """Count a step; False: the tracker has to."""
        counts = self._counts
        step = counts.steps + 1
        is_last = step == self._border_at or time.monotonic() >= self._due_s
        if is_last or get_ident() != self._thread:
            return False
        counts.steps, counts.next_begun = step, False
        counts.skipped += 1
        return True
