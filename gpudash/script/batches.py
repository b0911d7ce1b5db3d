"""Follows the script's DataLoaders: the waits for batches, and the batches' sizes."""

import time
from threading import get_ident
from typing import Any

from ..instrument.guard import event
from .boundaries import FIRST
from .declared import DeclaredSteps
from .samples import Tokens, first_dimension, first_tensor, tokens_in
from .step_counts import StepCounts, total


class BatchedSteps(DeclaredSteps):
    """Handles the events of DataLoaders."""

    @event("DataLoader")
    def loader_opened(self, iterator: Any, loader: Any) -> bool:
        if self._stop_skipping():
            self.samples = None  # the script may have left the newest batch
        if self.mode is FIRST and not self._depth:
            self._tally = StepCounts()  # batches before these were looked at, or evaluated
        self._feeds.opened(iterator, loader, keeps=self.mode.is_on)
        return False

    @event("DataLoader")
    def foreign_loader_opened(self, loader: Any) -> bool:
        library = type(loader).__module__.partition(".")[0]
        if library != self._feeds.foreign:
            self._feeds.foreign, self._findings.is_news = library, True
        return False

    @event("DataLoader")
    def batch_asked(self, iterator: Any) -> bool:
        if not self.mode.is_on or self.counting.fetching:
            return False
        if self._thread is not None and get_ident() != self._thread:
            return False
        if self.mode.is_skipping:
            if self._feeds.is_of(iterator):
                self.counting.fetching, self._asked_s = True, time.monotonic()
                return True
            self._stop_skipping()
        self.counting.fetching = True
        self._optimizer_depth = self._backward_depth = 0  # an exception may have left these above 0
        if self._asides.fetches(self._feeds.loader_id(iterator)):
            self._turn_aside()
        elif self._asides.why is not None:
            self._restart()
        self._enter("waits")
        self._asked_s = time.monotonic()
        return True

    @event("DataLoader")
    def batch_arrived(self, iterator: Any, batch: Any, asked_s: float | None) -> bool:
        """Note that the batch has come, waited for since `asked_s` if not since `batch_asked`."""
        now = time.monotonic()
        self.counting.fetching = False
        tally, is_skipping = self._tally, self.mode.is_skipping
        tally.data_s += now - (self._asked_s if asked_s is None else asked_s)
        tally.batches += 1
        size = first_dimension(batch)
        tally.newest, tally.fetched = size or 0, total(tally.fetched, size)
        if self._has_tokens or not is_skipping:
            self._count_tokens(tally, tokens_in(batch))
        if is_skipping:
            self.counting.next_begun = True
            return False
        self._enter("copies" if self._is_elsewhere(batch) else "has a batch")
        if not self._feeds.is_of(iterator) and self._feeds.note(iterator, self._asides, batch):
            self._findings.is_news = True
        if now >= self._idle_s:
            self._idle(now)
        return False

    def _count_tokens(self, tally: StepCounts, tokens: Tokens | None) -> None:
        if tokens is None:
            tally.newest_tokens, tally.tokens = 0, None
            return
        tally.newest_tokens, tally.tokens = tokens.number, total(tally.tokens, tokens.number)
        tally.padding = total(tally.padding, tokens.padding)
        self._has_tokens = True
        if tokens.padding is None and not self._findings.counts_padding:
            self._findings.counts_padding = self._findings.is_news = True

    @event("DataLoader")
    def batch_failed(self, iterator: Any, asked_s: float | None) -> bool:
        """Note that the loader is exhausted, or raised; `asked_s` is as for `batch_arrived`."""
        self.counting.fetching = False
        # the steps that were only counted end here, after this wait
        self._tally.data_s += time.monotonic() - (self._asked_s if asked_s is None else asked_s)
        self._stop_skipping()
        self._asides.exhausts(self._feeds.loader_id(iterator))
        self._enter("has a batch")
        return False

    def _is_elsewhere(self, batch: Any) -> bool:
        if not self._findings.calls_seen:
            return False
        tensor = first_tensor(batch)
        return tensor is not None and tensor.device.type != self._findings.device_type
