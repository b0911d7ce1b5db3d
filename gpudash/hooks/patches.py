"""Patches torch to report to the tracker what the script does.

Each patch passes on all arguments, results and exceptions unchanged, without a frame of its own in
tracebacks. Nothing is stored on objects of the script's. Some of the patched functions are private
and may move: a test for each fails if they do.
"""

import gc
import os
import time
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

import torch
from torch.jit import _recursive as scripting
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpudash.hooks.frames import unseen, without_ours
from gpudash.hooks.roots import CALL_ATTRIBUTE
from gpudash.hooks.tracker import Tracker
from gpudash.instrument.uncompiled import uncompiled


def patch(tracker: Tracker) -> None:
    """Patch torch in this process. A forked child inherits the patches."""
    _patch_optimizers(tracker)
    _patch_scaler(tracker)
    _patch_backward(tracker)
    _patch_loaders(tracker)
    _patch_save(tracker)
    _patch_graphs(tracker)
    _patch_freeze(tracker)
    scripting.ignored_attributes.append(CALL_ATTRIBUTE)  # else `torch.jit.script` wants its type
    os.register_at_fork(after_in_child=tracker.forget)


def _patch_optimizers(tracker: Tracker) -> None:
    def before(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            counting = tracker.counting
            if (
                counting is not None
                and counting.optimizer == id(optimizer)
                and len(args) == 1
                and not kwargs
                and counting.thread == get_ident()
            ):
                return  # its end will do
            # a subclass may take something else as second argument
            has_closure = callable(kwargs.get("closure") if len(args) < 2 else args[1])
            tracker.optimizer_begins(optimizer, has_closure)
        except BaseException as error:  # `with unseen` would take time in each step
            without_ours(error)
            raise

    def after(optimizer: Optimizer, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        try:
            counting = tracker.counting
            if counting is None or not counting.optimizer_ends():
                tracker.optimizer_ends(optimizer)
        except BaseException as error:
            without_ours(error)
            raise

    register_optimizer_step_pre_hook(uncompiled(before))
    register_optimizer_step_post_hook(uncompiled(after))


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

    scaler.step, scaler.scale = hooked_step, hooked_scale  # type: ignore[method-assign]


def _patch_backward(tracker: Tracker) -> None:
    backward = torch.autograd.backward

    @wraps(backward)
    def hooked(tensors: Any, *args: Any, **kwargs: Any) -> None:
        noted, counting = False, tracker.counting
        try:
            if counting is None or not counting.backward_begins(tensors):
                noted = tracker.backward_begins(tensors)
            return backward(tensors, *args, **kwargs)
        except BaseException as error:
            without_ours(error)
            raise
        finally:
            if noted:
                tracker.backward_ends(tensors)

    torch.autograd.backward = uncompiled(hooked, deeply=False)


def _patch_loaders(tracker: Tracker) -> None:
    # not `__init__`: its warnings name their caller
    def hooked_new(kind: type[Any], *args: Any, **kwargs: Any) -> Any:
        with unseen:
            make = super(_BaseDataLoaderIter, kind).__new__
            made = make(kind) if make is object.__new__ else make(kind, *args, **kwargs)
            for loader in (*args, *kwargs.values()):  # a subclass may take it anywhere, or not
                if isinstance(loader, DataLoader):
                    tracker.loader_opened(made, loader)
                    break
            return made

    _BaseDataLoaderIter.__new__ = hooked_new  # type: ignore[method-assign,assignment]
    _patch_batches(tracker)


def _patch_batches(tracker: Tracker) -> None:
    advance = _BaseDataLoaderIter.__next__
    followed = _followed(tracker, advance)

    @wraps(advance)
    def hooked(self: Any) -> Any:
        counting, asked_s = tracker.counting, None
        try:
            if (
                counting is None
                or counting.iterator() is not self
                or tracker.fetching
                or get_ident() != counting.thread
            ):
                return followed(self)
            tracker.fetching, asked_s = True, time.monotonic()
            batch = advance(self)
        except BaseException as error:
            without_ours(error)
            if asked_s is not None:
                tracker.batch_failed(self, asked_s)
            raise
        tracker.fetching = False
        if tracker.counting is not counting:
            asked_s = None  # the clock has closed the steps that waited
        elif counting.batch_arrived(batch, asked_s):
            return batch
        if tracker.batch_asked(self):
            tracker.batch_arrived(self, batch, asked_s)
        return batch

    _BaseDataLoaderIter.__next__ = uncompiled(hooked, deeply=False)  # type: ignore[method-assign]


def _followed(tracker: Tracker, advance: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that has the tracker follow an iterator's wait for a batch."""
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


def _patch_save(tracker: Tracker) -> None:
    hooked = _with_begin_and_end(torch.save, tracker.save_begins, tracker.save_ends)
    torch.save = torch.serialization.save = hooked  # pickle finds a function where it is defined


def _patch_graphs(tracker: Tracker) -> None:
    graph = torch.cuda.CUDAGraph
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    @wraps(begin)
    def hooked_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        with unseen:
            tracker.capture_begins()
            begin(self, *args, **kwargs)

    @wraps(end)
    def hooked_end(self: Any, *args: Any, **kwargs: Any) -> None:
        with unseen:
            try:
                end(self, *args, **kwargs)
            finally:
                tracker.capture_ends(self)

    @wraps(replay)
    def hooked_replay(self: Any) -> None:
        noted = False
        with unseen:
            try:
                noted = tracker.replay_begins(self)
                replay(self)
            finally:
                if noted:
                    tracker.replay_ends()

    graph.capture_begin, graph.capture_end = hooked_begin, hooked_end  # type: ignore[method-assign]
    graph.replay = hooked_replay  # type: ignore[method-assign]


def _patch_freeze(tracker: Tracker) -> None:
    freeze = gc.freeze

    @wraps(freeze)
    def hooked() -> None:
        tracker.freezes()
        freeze()

    gc.freeze = hooked


def _with_begin_and_end(
    function: Callable[..., Any], begins: Callable[[], bool], ends: Callable[[], bool]
) -> Callable[..., Any]:
    @wraps(function)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        noted = False
        with unseen:
            try:
                noted = begins()
                return function(*args, **kwargs)
            finally:
                if noted:
                    ends()

    return hooked
