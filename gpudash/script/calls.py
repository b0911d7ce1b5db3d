"""Follows the calls of models: for a rollout, for an evaluation, without gradients, or to train."""

from threading import get_ident
from typing import Any

import torch
from torch import nn

from ..instrument.guard import event
from ..levers.training_objects import NewestCall, Root
from .batches import BatchedSteps
from .discovery import Discovery
from .grammar import Symbol
from .samples import first_dimension, needs_gradient
from .step_counts import total

AUTOCAST_EVERY = 16
"""After so many steps, look again whether a root is called inside an autocast."""
FEW = 4
"""A rollout in evaluation mode acts on so many times fewer samples at once than a step learns
from."""


class CalledSteps(BatchedSteps):
    """Handles the events of models."""

    def reset(self) -> None:
        super().reset()
        self._findings = Discovery(self)

    @event("forward")
    def called(
        self, root: Root, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        if get_ident() != self._thread or self._backward_depth:
            return False
        inputs = (*args, *kwargs.values())
        if root.is_frozen:
            return self._frozen_called(root, args, kwargs)
        has_gradients = torch.is_grad_enabled()
        learns = module.training and has_gradients
        if learns and self.mode.is_skipping:
            self.counting.next_begun = True
        elif self._stop_skipping():
            self._asides.trains()
        samples = first_dimension(inputs)
        symbol: Symbol = "trains" if has_gradients else "freezes"
        if learns:
            self._call(root, args, kwargs, samples)
        else:
            self._is_plain = False  # the next step may have such a call too
            is_before = self._asides.is_between and not self._tally.batches
            if is_before and not has_gradients and self._acts(root, module, samples):
                symbol = "acts"
            elif (not module.training or not self._tally.batches) and self._asides.calls():
                self._turn_aside(self._to_train_on())
            elif is_before and not has_gradients and self._asides.why is None:
                symbol = "acts"
        self._tally.calls += 1
        return self._call_begins(root, symbol, samples)

    def _call_begins(self, root: Root, symbol: Symbol, samples: int | None) -> bool:
        if self.mode.is_skipping or not self.mode.is_on:
            return False
        is_learned_from = not (root.is_frozen or self._tally.batches or self._feeds.is_fed())
        known = samples if root.has_samples_first else None
        self._learned.called(root if is_learned_from else None, known)
        self._enter(symbol, root)
        return True

    @event("forward")
    def returned(self) -> bool:
        self._learned.returned()
        self._enter("returns")
        return False

    def _frozen_called(self, root: Root, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if self.mode.is_skipping:
            return False
        if not root.was_called:
            root.was_called = self._findings.is_news = True
        has_gradients = torch.is_grad_enabled() and needs_gradient((*args, *kwargs.values()))
        if root.keeps_calls:
            root.newest = NewestCall(args, kwargs, self._autocast(), has_gradients)
        return self._call_begins(root, "trains" if has_gradients else "freezes", None)

    def _acts(self, root: Root, module: nn.Module, samples: int | None) -> bool:
        """Return whether a call without gradients, before a step, is a rollout.

        A rollout acts on few samples at a time, and steps then learn from many. An evaluation has
        as many as a step, or more. In evaluation mode only far fewer are taken for a rollout, and
        only where there is no DataLoader.
        """
        is_fed, learned = self._feeds.feed is not None, root.trained_on
        if self._asides.why is not None:
            return False
        if samples is None or learned is None:
            return module.training and not is_fed
        return samples < learned if module.training else not is_fed and samples * FEW <= learned

    @event("eval")
    def turns_to_evaluation(self) -> bool:
        if get_ident() != self._thread:
            return False
        if self.mode.is_skipping:
            self._put_hooks_in()
        if self._no_more_comes():  # no optimizer that may have been due has stepped
            self._asides.border()
        return False

    def _call(
        self, root: Root, args: tuple[Any, ...], kwargs: dict[str, Any], samples: int | None
    ) -> None:
        root.trained_on = samples
        if self._asides.why is not None:
            self._resume()
        if self._asides.is_between:
            self._asides.trains()
        tally = self._tally
        if root.keeps_calls or self.steps >= root.looked_at:
            root.looked_at, root.was_called = self.steps + AUTOCAST_EVERY, True
            autocast, before = self._autocast(), root.autocast
            root.autocast = None if autocast is None else autocast[1]
            self._findings.is_news |= root.autocast != before
            if root.keeps_calls:
                root.newest = NewestCall(args, kwargs, autocast)
        if tally.is_open and not tally.batches and not (self._optimizer_depth and tally.backwards):
            tally.called = total(tally.called, samples if root.has_samples_first else None)
        tally.is_open = False

    def _autocast(self) -> tuple[str, torch.dtype] | None:
        kind = self._findings.device_type
        return (kind, torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else None
