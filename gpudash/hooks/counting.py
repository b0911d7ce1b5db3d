"""Counts plain steps, timed together or watched by nobody, with as little host time as possible.

Each event of such a step takes one call here. Between two calls torch runs a thousand functions of
its own, so hardly any of this code is still in a cache: it costs by its size. Nothing here can
fail. The tracker gets whatever is not plain, and measures steps in full again.
"""

import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from torch import Tensor

from gpudash.hooks.samples import SEQUENCES
from gpudash.hooks.signals import is_from_handler
from gpudash.hooks.tally import Tally
from gpudash.instrument.uncompiled import uncompiled


class Counts(Protocol):
    """What the steps are counted in."""

    steps: int
    skipped: int
    next_begun: bool


class Counting:
    """The plain steps until the next one that is measured in full."""

    __slots__ = (
        "_border_at",
        "_counts",
        "_due_s",
        "_keeps_loss",
        "_tally",
        "iterator",
        "optimizer",
        "thread",
    )

    def __init__(
        self,
        counts: Counts,
        tally: Tally,
        *,
        thread: int | None,
        optimizer: int,
        iterator: Callable[[], Any],
        keeps_loss: bool,
        border_at: int,
        due_s: float,
    ) -> None:
        """Count the steps of a thread, by an optimizer's id.

        `iterator` returns that of the loader whose batches are counted, or None. The newest loss is
        kept if `keeps_loss`. A step that is `border_at`, or ends at `due_s` or later, is left to
        the tracker.
        """
        self._counts, self._tally = counts, tally
        self.thread, self.optimizer, self.iterator = thread, optimizer, iterator
        self._keeps_loss, self._border_at, self._due_s = keeps_loss, border_at, due_s

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
        tally.newest = size = first.size(0)
        tally.fetched = None if tally.fetched is None else tally.fetched + size
        self._counts.next_begun = True
        return True

    @uncompiled
    def backward_begins(self, tensors: Any) -> bool:
        """Note a backward pass, and keep its loss where asked to; False: the tracker has to."""
        if type(tensors) is not Tensor or get_ident() != self.thread:
            return False
        tally = self._tally
        try:
            if self._keeps_loss:
                tally.loss = tensors.detach() if tensors.numel() == 1 else None
        except Exception as error:  # in a dispatch mode of the script's
            if is_from_handler(error):
                raise
            return False
        self._counts.next_begun = tally.is_open = True
        return True

    def optimizer_ends(self) -> bool:
        """Count a step; False: the tracker has to."""
        counts = self._counts
        step = counts.steps + 1
        is_last = step == self._border_at or time.monotonic() >= self._due_s
        if is_last or get_ident() != self.thread:
            return False
        counts.steps, counts.next_begun = step, False
        counts.skipped += 1
        return True
