"""Patches torch to report to the tracker what the script does.

No patch has a frame in tracebacks, and none stores anything on objects of the script's. Some of the
patched functions are private: a test for each fails if it moves. `patching.undo` puts all back.
"""

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.jit import _recursive as scripting
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from ..instrument import patching
from ..instrument.guard import unseen, without_ours
from ..instrument.patching import uncompiled
from ..instrument.slowing import hook_loaders
from .counting import count_backward, count_batches, count_steps
from .hooked_methods import surrounded
from .roots import CALL_ATTRIBUTE
from .tracker import Tracker


def patch(tracker: Tracker) -> None:
    """Patch torch in this process. A forked child inherits the patches."""
    _patch_optimizers(tracker)
    _patch_scaler(tracker)
    _patch_backward(tracker)
    _patch_loaders(tracker)
    hook_loaders()
    _patch_save(tracker)
    _patch_graphs(tracker)
    _patch_eval(tracker)
    _patch_freeze(tracker)
    scripting.ignored_attributes.append(CALL_ATTRIBUTE)  # else `torch.jit.script` wants its type
    patching.at_undo(lambda: scripting.ignored_attributes.remove(CALL_ATTRIBUTE))
    patching.after_fork(tracker.forget)


def _patch_optimizers(tracker: Tracker) -> None:
    before, after = count_steps(tracker)
    patching.at_undo(register_optimizer_step_pre_hook(before).remove)
    patching.at_undo(register_optimizer_step_post_hook(after).remove)


def _patch_scaler(tracker: Tracker) -> None:
    scaler = torch.amp.GradScaler
    step, scale = scaler.step, scaler.scale

    @wraps(step)
    def hooked_step(self: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        noted = False
        with unseen:
            try:
                if self.is_enabled():
                    tracker.scaler_steps()
                    noted = tracker.optimizer_begins(optimizer, False)
                return step(self, optimizer, *args, **kwargs)
            finally:
                if noted:
                    tracker.optimizer_ends(optimizer)

    @wraps(scale)
    def hooked_scale(self: Any, outputs: Any) -> Any:
        with unseen:
            scaled = scale(self, outputs)
            tracker.loss_scaled(outputs, scaled)
            return scaled

    patching.replace(scaler, "step", hooked_step)
    patching.replace(scaler, "scale", hooked_scale)


def _patch_backward(tracker: Tracker) -> None:
    backward, counting = torch.autograd.backward, tracker.counting

    @wraps(backward)
    def hooked(tensors: Any, *args: Any, **kwargs: Any) -> None:
        noted = False
        try:
            if not count_backward(counting, tensors):
                noted = tracker.backward_begins(tensors)
            return backward(tensors, *args, **kwargs)
        except BaseException as error:
            without_ours(error)
            raise
        finally:
            if noted:
                tracker.backward_ends(tensors)

    def switch(is_on: bool) -> None:  # noqa: FBT001  # the tracker calls it by position
        if torch.autograd.backward is (backward if is_on else hooked):  # else another tool has it
            torch.autograd.backward = hooked if is_on else backward

    patching.replace(torch.autograd, "backward", uncompiled(hooked, deeply=False))
    tracker.switch_backward = switch


def _patch_loaders(tracker: Tracker) -> None:
    # their base warns in the name of its caller, and a `__new__` could not be taken away again
    for kind in (_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter):
        patching.replace(kind, "__init__", _opening(tracker, kind.__init__))
    _patch_batches(tracker)


def _opening(tracker: Tracker, function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> None:
        with unseen:
            loader = next(iter((*args, *kwargs.values())), None)
            if isinstance(loader, DataLoader):
                tracker.loader_opened(self, loader)
            else:
                tracker.foreign_loader_opened(loader)
            function(self, *args, **kwargs)

    return hooked


def _patch_batches(tracker: Tracker) -> None:
    advance = _BaseDataLoaderIter.__next__
    counted = count_batches(tracker, advance, _followed(tracker, advance))
    patching.at_undo(lambda: _keep_redirects(tracker, advance))
    patching.replace(_BaseDataLoaderIter, "__next__", counted)


def _followed(tracker: Tracker, advance: Callable[[Any], Any]) -> Callable[[Any], Any]:
    redirects = tracker.redirects

    def followed(self: Any) -> Any:
        noted = False
        try:
            noted = tracker.batch_asked(self)
            batch = redirects[self]() if self in redirects else advance(self)
        except BaseException:
            if noted:
                tracker.batch_failed(self, None)
            raise
        if noted:
            tracker.batch_arrived(self, batch, None)
        return batch

    return uncompiled(followed, deeply=False)


def _keep_redirects(tracker: Tracker, advance: Callable[[Any], Any]) -> None:
    redirects = tracker.redirects
    if not redirects:
        return

    @wraps(advance)
    def redirected(self: Any) -> Any:
        return redirects[self]() if self in redirects else advance(self)

    _BaseDataLoaderIter.__next__ = redirected  # type: ignore[method-assign]


def _patch_save(tracker: Tracker) -> None:
    hooked = surrounded(torch.save, tracker.save_begins, tracker.save_ends)
    for place in (torch, torch.serialization):  # pickle finds a function where it is defined
        patching.replace(place, "save", hooked)


def _patch_graphs(tracker: Tracker) -> None:
    graph = torch.cuda.CUDAGraph
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    @wraps(end)
    def hooked_end(self: Any, *args: Any, **kwargs: Any) -> None:
        with unseen:
            try:
                end(self, *args, **kwargs)
            finally:
                tracker.capture_ends(self)

    patching.replace(graph, "capture_begin", surrounded(begin, tracker.capture_begins))
    patching.replace(graph, "capture_end", hooked_end)
    replayed = surrounded(replay, tracker.replay_begins, tracker.replay_ends, takes=1)
    patching.replace(graph, "replay", replayed)


def _patch_eval(tracker: Tracker) -> None:
    evaluate = nn.Module.eval

    @wraps(evaluate)
    def hooked(self: nn.Module) -> nn.Module:
        if is_dynamo_compiling():  # not `uncompiled`: a model that must be one graph may call this
            return evaluate(self)
        with unseen:
            tracker.turns_to_evaluation()
            return evaluate(self)

    patching.replace(nn.Module, "eval", hooked)


def _patch_freeze(tracker: Tracker) -> None:
    patching.replace(gc, "freeze", surrounded(gc.freeze, tracker.freezes))
