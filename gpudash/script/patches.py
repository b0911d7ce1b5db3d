"""Patches torch to report to the tracker what the script does.

No patch has a frame in tracebacks, and none stores anything on objects of the script's. Some of the
patched functions are private: a test for each fails if it moves. `patching.undo` puts all back.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.jit import _recursive as scripting
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from ..instrument import loader_workers, patching
from ..instrument.guard import unseen, without_ours
from ..instrument.patching import uncompiled
from ..instrument.slowing import hook_loaders
from ..levers.training_objects import Redirects
from .counting import Counting, count_backward, count_batches, count_steps
from .hooked_methods import Tell, surrounded
from .meter import Meter
from .roots import CALL_ATTRIBUTE, note_made
from .tracker import Tracker


def patch(tracker: Tracker) -> None:
    """Patch torch in this process. A forked child inherits the patches."""
    tell, meter = tracker.tell, tracker.meter
    _patch_making()
    _patch_optimizers(meter.counting, tell)
    _patch_scaler(tell)
    _patch_backward(meter, tell)
    _patch_loaders(meter, tell)
    _patch_copies(meter, tell)
    hook_loaders()
    loader_workers.hook()
    _patch_save(tell)
    _patch_graphs(tell)
    patching.replace(nn.Module, "eval", _preceded(nn.Module.eval, partial(tell, "eval: begins")))
    scripting.ignored_attributes.append(CALL_ATTRIBUTE)  # else `torch.jit.script` wants its type
    patching.at_undo(lambda: scripting.ignored_attributes.remove(CALL_ATTRIBUTE))
    patching.after_fork(tracker.forget)


def _patch_making() -> None:
    for kind in (nn.Module, Optimizer):
        for name in ("__init__", "__setstate__"):  # a copy is only given its state
            patching.replace(kind, name, _preceded(getattr(kind, name), note_made))


def _preceded(function: Callable[..., Any], action: Callable[[Any], object]) -> Callable[..., Any]:
    """Act before a method, but not in a graph: a model that must be one may call it."""

    @wraps(function)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return function(self, *args, **kwargs)
        with unseen:
            action(self)
            return function(self, *args, **kwargs)

    return hooked


def _patch_optimizers(counting: Counting, tell: Tell) -> None:
    before, after = count_steps(counting, tell)
    patching.at_undo(register_optimizer_step_pre_hook(before).remove)
    patching.at_undo(register_optimizer_step_post_hook(after).remove)


def _patch_scaler(tell: Tell) -> None:
    scaler = torch.amp.GradScaler
    step, scale = scaler.step, scaler.scale

    @wraps(step)
    def hooked_step(self: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        noted: bool | None = False
        with unseen:
            try:
                noted = self.is_enabled() and tell("GradScaler: begins", optimizer)
                return step(self, optimizer, *args, **kwargs)
            finally:
                if noted:
                    tell("optimizer: ends", optimizer)

    @wraps(scale)
    def hooked_scale(self: Any, outputs: Any) -> Any:
        with unseen:
            scaled = scale(self, outputs)
            tell("GradScaler: scales", outputs, scaled)
            return scaled

    patching.replace(scaler, "step", hooked_step)
    patching.replace(scaler, "scale", hooked_scale)


def _patch_backward(meter: Meter, tell: Tell) -> None:
    backward, counting = torch.autograd.backward, meter.counting

    @wraps(backward)
    def hooked(tensors: Any, *args: Any, **kwargs: Any) -> None:
        noted: bool | None = False
        try:
            if not count_backward(counting, tensors):
                noted = tell("backward: begins", tensors)
            return backward(tensors, *args, **kwargs)
        except BaseException as error:
            without_ours(error)
            raise
        finally:
            if noted:
                tell("backward: ends", tensors)

    def switch(is_on: bool) -> None:  # noqa: FBT001  # the meter calls it by position
        if torch.autograd.backward is (backward if is_on else hooked):  # else another tool has it
            torch.autograd.backward = hooked if is_on else backward

    patching.replace(torch.autograd, "backward", uncompiled(hooked, deeply=False))
    meter.switch_backward = switch


def _patch_loaders(meter: Meter, tell: Tell) -> None:
    # their base warns in the name of its caller, and a `__new__` could not be taken away again
    for kind in (_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter):
        patching.replace(kind, "__init__", _opening(tell, kind.__init__))
    advance, redirects = _BaseDataLoaderIter.__next__, meter.redirects
    followed = _followed(redirects, tell, advance)
    counted = count_batches(meter.counting, tell, advance, followed)

    def keep() -> None:
        if redirects:  # the script goes on with batches that other iterators make
            _BaseDataLoaderIter.__next__ = followed  # type: ignore[method-assign, assignment]

    patching.at_undo(keep)
    patching.replace(_BaseDataLoaderIter, "__next__", counted)


def _patch_copies(meter: Meter, tell: Tell) -> None:
    """Have copies told behind a batch alone: a tensor's methods are called all over the place."""
    ours = {
        name: surrounded(getattr(Tensor, name), tell, "copy: begins", "copy: ends", takes=1)
        for name in ("to", "cuda")
    }

    def switch(is_on: bool) -> None:  # noqa: FBT001  # the meter calls it by position
        for name, hooked in ours.items():
            if is_on and name not in vars(Tensor):
                setattr(Tensor, name, hooked)
            elif not is_on and vars(Tensor).get(name) is hooked:
                delattr(Tensor, name)

    patching.at_undo(lambda: switch(False))
    meter.switch_copies = switch


def _opening(tell: Tell, function: Callable[..., None]) -> Callable[..., None]:
    @wraps(function)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> None:
        with unseen:
            waits = tell("DataLoader: opened", self, next(iter((*args, *kwargs.values())), None))
            function(self, *args, **kwargs)
            tell("DataLoader: started", waits)

    return hooked


def _followed(
    redirects: Redirects, tell: Tell, advance: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    @wraps(advance)
    def followed(self: Any) -> Any:
        noted: bool | None = False
        try:
            noted = tell("DataLoader: asked", self)
            batch = redirects[self]() if self in redirects else advance(self)
        except BaseException:
            if noted:
                tell("DataLoader: failed", self, None)
            raise
        if noted:
            tell("DataLoader: arrived", self, batch, None)
        return batch

    return uncompiled(followed, deeply=False)


def _patch_save(tell: Tell) -> None:
    hooked = surrounded(torch.save, tell, "torch.save: begins", "torch.save: ends")
    for place in (torch, torch.serialization):  # pickle finds a function where it is defined
        patching.replace(place, "save", hooked)


def _patch_graphs(tell: Tell) -> None:
    graph, event = torch.cuda.CUDAGraph, "CUDA graph: "
    for name, begins, ends, takes in (
        ("capture_begin", f"{event}capture begins", "", 0),
        ("capture_end", "", f"{event}capture ends", 1),
        ("replay", f"{event}replay begins", f"{event}replay ends", 1),
    ):
        hooked = surrounded(getattr(graph, name), tell, begins, ends, takes=takes)
        patching.replace(graph, name, hooked)
