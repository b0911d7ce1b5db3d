"""Calls of models: for a rollout, for an evaluation, without gradients, or to train."""

from typing import Any

import torch
from torch import nn

from ..levers.training_objects import NewestCall, Root
from .grammar import Symbol
from .samples import first_dimension, needs_gradient
from .step_counts import total
from .steps import Handlers, Steps

AUTOCAST_EVERY = 16
"""After so many steps, look again whether a root is called inside an autocast."""
FEW = 4
"""A rollout in evaluation mode acts on so many times fewer samples at once than a step learns
from."""


def _begins(
    steps: Steps, root: Root, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    meter, asides, has_gradients = steps.meter, steps.asides, torch.is_grad_enabled()
    mode, learns = meter.mode, module.training and has_gradients
    is_unusual = mode.is_skipping and not (root.is_frozen or learns)
    if steps.follower.backwards or not (mode.wants_calls or is_unusual):
        return False
    if root.is_frozen:
        return _frozen_begins(steps, root, args, kwargs)
    if learns and mode.is_skipping:
        meter.counting.next_begun = True
    elif steps.stop_skipping():
        asides.trains()
    samples = first_dimension((*args, *kwargs.values()))
    symbol: Symbol = "trains" if has_gradients else "freezes"
    if learns:
        _train(steps, root, args, kwargs, samples)
    else:
        meter.is_plain = False  # the next step may have such a call too
        may_act = asides.is_between and not has_gradients and asides.why is None
        has_batch = meter.tally.batches > 0
        if may_act and _acts(steps, root, module, samples):
            symbol = "acts"
        elif (not module.training or not has_batch) and asides.calls():
            steps.turn_aside(steps.to_train_on())
        elif may_act and not has_batch:
            symbol = "acts"
    meter.tally.calls += 1
    return _enter(steps, root, symbol, samples)


def _enter(steps: Steps, root: Root, symbol: Symbol, samples: int | None) -> bool:
    meter = steps.meter
    if meter.mode.is_skipping or not meter.mode.is_on:
        return False
    is_learned_from = not (root.is_frozen or meter.tally.batches or steps.feeds.is_fed())
    known = samples if root.has_samples_first else None
    steps.learned.called(root if is_learned_from else None, known)
    meter.enter(symbol, root)
    return True


def _ends(steps: Steps) -> None:
    steps.learned.returned()
    steps.meter.enter("returns")


def _frozen_begins(steps: Steps, root: Root, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if steps.meter.mode.is_skipping:
        return False
    if not root.was_called:
        root.was_called = steps.findings.is_news = True
    has_gradients = torch.is_grad_enabled() and needs_gradient((*args, *kwargs.values()))
    if root.keeps_calls:
        root.newest = NewestCall(args, kwargs, _autocast(steps), has_gradients)
    return _enter(steps, root, "trains" if has_gradients else "freezes", None)


def _acts(steps: Steps, root: Root, module: nn.Module, samples: int | None) -> bool:
    """Return whether a call without gradients, before a step's first training call, is a rollout.

    A model that is called more than once with a batch, before it trains, generates from it. Without
    one, a rollout acts on few samples at a time, and steps then learn from many. An evaluation has
    as many as a step, or more. In evaluation mode only far fewer are taken for a rollout, and only
    where there is no DataLoader. Where a DataLoader stays, no rollout has made its batches.
    """
    tally, feeds, learned = steps.meter.tally, steps.feeds, root.trained_on
    if tally.batches and not steps.asides.is_foreign:
        root.generates |= tally.asked is root
        tally.asked = root
    if tally.batches or root.generates:
        return root.generates
    if samples is None or learned is None:
        return module.training and feeds.feed is None
    if module.training:
        return samples < learned and not feeds.stays
    return feeds.feed is None and samples * FEW <= learned


def _turns_to_evaluation(steps: Steps, _module: nn.Module) -> None:
    if steps.meter.mode.is_skipping:
        steps.meter.put_hooks_in()
    if steps.no_more_comes():  # no optimizer that may have been due has stepped
        steps.asides.border()


def _train(
    steps: Steps, root: Root, args: tuple[Any, ...], kwargs: dict[str, Any], samples: int | None
) -> None:
    asides, findings, step = steps.asides, steps.findings, steps.meter.counting.steps
    root.trained_on = samples
    if asides.why is not None:
        if asides.ended_by_call:
            steps.restart(steps.held)
        steps.observer.aside(None)
    if asides.is_between:
        asides.trains()
    tally = steps.meter.tally
    if root.keeps_calls or step >= root.looked_at:
        root.looked_at, root.was_called = step + AUTOCAST_EVERY, True
        autocast, before = _autocast(steps), root.autocast
        root.autocast = None if autocast is None else autocast[1]
        findings.is_news |= root.autocast != before
        if root.keeps_calls:
            root.newest = NewestCall(args, kwargs, autocast)
    closes_over = steps.follower.optimizers and tally.backwards
    if tally.is_open and not tally.batches and not closes_over:
        tally.called = total(tally.called, samples if root.has_samples_first else None)
    tally.is_open = False


def _autocast(steps: Steps) -> tuple[str, torch.dtype] | None:
    kind = steps.findings.device_type
    return (kind, torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else None


HANDLERS: Handlers = {
    "forward: begins": _begins,
    "forward: ends": _ends,
    "eval: begins": _turns_to_evaluation,
}
