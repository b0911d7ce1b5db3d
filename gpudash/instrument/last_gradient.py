"""The moment in a backward pass at which the last gradient of a module is there.

What follows in a pass of DistributedDataParallel is exposed communication: its last collective
begins with that gradient, and nothing is left to compute beside it. Which parameter's gradient
comes last is found by watching all of them in one pass; from then on that one tells, by a hook that
runs before the collective. In a model that branches the last is not always the same one, so a few
are known, and only the end of the pass says whether the newest of them was the last.

All hooks come with a pass and go with it: between passes nothing of ours is on a parameter, to be
pickled, copied, compiled or kept alive.
"""

import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gpudash.instrument.uncompiled import uncompiled

WATCH_EVERY = 256
"""After so many passes at the latest all parameters are watched again: 5 µs for each of them."""
TRIES = 8
"""After so many watched passes in a row in which no gradient came, no more are."""
MOST_KNOWN = 8


class LastGradient:
    """`on_last` is called in a backward pass, on autograd's thread, where the last gradient is.

    It may be called more than once in a pass: the newest call counts. It must not raise.
    """

    def __init__(self, module: nn.Module, on_last: Callable[[], object]) -> None:
        self._module = weakref.ref(module)
        self._on_last = on_last
        self._known: dict[int, weakref.ref[Tensor]] = {}  # by id, the newest last
        self._handles: list[RemovableHandle] = []
        self._watched: list[Tensor] = []
        self._is_watching = False
        self._until_watch = 0  # passes
        self._patience = 1  # passes without the last gradient, before all are watched again
        self._misses = 0
        # in the pass in progress, ids
        self._newest: int | None = None
        self._told: int | None = None

    @property
    def is_lost(self) -> bool:
        """Whether it cannot be told: gradients never come to these parameters."""
        return self._misses >= TRIES

    def begin(self) -> None:
        """Take that a backward pass begins; the forward pass is over."""
        self._detach()
        self._newest = self._told = None
        if self.is_lost or _traces_hooks():
            return
        for parameter in [one for ref in self._known.values() if (one := ref()) is not None]:
            if parameter.requires_grad:
                handle = parameter.register_post_accumulate_grad_hook(self._tell)  # type: ignore[no-untyped-call]  # in torch
                self._handles.append(handle)
        self._until_watch -= 1
        self._is_watching = self._until_watch < 0
        if self._is_watching:
            self._watched = self._parameters()
            for parameter in self._watched:
                note = partial(self._note, id(parameter))
                self._handles.append(parameter.register_hook(note))  # type: ignore[no-untyped-call]  # in torch

    def end(self) -> bool:
        """Take that it is over, or has failed; return whether the newest `on_last` was right."""
        self._detach()
        if self._is_watching:
            self._is_watching = False
            self._learn(self._newest)
            return self._told is not None and self._told == self._newest
        if self._told is None:
            self._until_watch = min(self._until_watch, self._patience)
        return self._told is not None

    def _learn(self, newest: int | None) -> None:
        """Take whose gradient was the last, by a pass in which all were watched."""
        self._until_watch = WATCH_EVERY
        if newest is None:
            self._misses += 1
            self._until_watch = self._patience
        elif newest in self._known:
            self._patience = min(2 * self._patience, WATCH_EVERY)
        else:
            self._misses, self._patience = 0, 1
            refs = {id(one): weakref.ref(one) for one in self._parameters()}
            if newest in refs:
                self._known[newest] = refs[newest]
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def _parameters(self) -> list[Tensor]:
        """Return those that a backward pass may come to."""
        module = self._module()
        parameters = () if module is None else nn.Module.parameters(module)
        return [one for one in parameters if one.requires_grad and one.is_leaf]

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for parameter in self._watched:
            if not parameter._backward_hooks:  # noqa: SLF001  # of `register_hook`
                parameter._backward_hooks = None  # noqa: SLF001  # empty, it costs 0.5 µs a pass
        self._watched.clear()

    @uncompiled
    def _note(self, parameter: int, _gradient: Tensor) -> None:
        self._newest = parameter

    @uncompiled
    def _tell(self, parameter: Tensor) -> None:
        self._told = id(parameter)
        self._on_last()


def _traces_hooks() -> bool:
    """Return whether the compiler would take hooks in, and compile the backward pass anew."""
    compiled: Any = sys.modules.get("torch._dynamo.compiled_autograd")
    config: Any = sys.modules.get("torch._dynamo.config")
    return getattr(compiled, "compiled_autograd_enabled", False) or getattr(
        config, "compiled_autograd", False
    )
