"""The moments in a backward pass at which the last gradient of a module is there, and three others.

What follows in a pass of DistributedDataParallel is exposed communication: its last collective
begins with that gradient, and nothing is left to compute beside it. Which parameter's gradient
comes last is found by watching all of them in one pass; from then on that one tells, by a hook that
runs before the collective. In a model that branches the last is not always the same one, so a few
are known, and only the end of the pass says whether the newest of them was the last.

Three more gradients cut what is computed into parts. All processes of a training cut at the same
parameters: which process is slower shows in the part in which it is, before the others wait for it.

All hooks come with a pass and go with it: between passes nothing of ours is on a parameter, to be
pickled, copied, compiled or kept alive.
"""

import sys
import weakref
from collections.abc import Callable, Sequence
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
PARTS = 4
"""A pass is cut into so many: more would cost more, and would hardly tell more."""


class LastGradient:
    """`on_last` is called in a backward pass, on autograd's thread, where the last gradient is.

    It may be called more than once in a pass: the newest call counts. `on_part` is called where a
    part of the pass is over. Neither must raise.
    """

    def __init__(
        self,
        module: nn.Module,
        on_last: Callable[[], object],
        on_part: Callable[[], object],
    ) -> None:
        self._on_last = on_last
        self._on_part = on_part
        cuts = self._cuts = dict[int, weakref.ref[Tensor]]()  # by id, as the next
        known = self._known = dict[int, weakref.ref[Tensor]]()  # by id, the newest last

        def forget(_: object) -> None:  # torch swaps no tensor that has a weakref, as `to` does
            cuts.clear()
            known.clear()

        self._module = weakref.ref(module, forget)
        self._handles: list[RemovableHandle] = []
        self._watched: list[Tensor] = []
        self._is_watching = False
        self._until_watch = 0  # passes
        self._patience = 1  # passes without the last gradient, before all are watched again
        self._misses = 0
        # in the pass in progress, ids
        self._newest: int | None = None
        self._reported: int | None = None

    @property
    def is_lost(self) -> bool:
        """Whether it cannot be told: gradients never come to these parameters."""
        return self._misses >= TRIES

    def begin(self) -> None:
        """Take that a backward pass begins; the forward pass is over."""
        self._detach()
        self._newest = self._reported = None
        if self.is_lost or _traces_hooks():
            return
        self._until_watch -= 1
        self._is_watching = self._until_watch < 0
        if self._is_watching:
            self._watched = self._parameters()
            self._cuts.clear()
            self._cuts.update((id(one), weakref.ref(one)) for one in _cuts(self._watched))
        cuts = [ref for one, ref in self._cuts.items() if one not in self._known]
        for hook, refs in ((self._report, self._known.values()), (self._part, cuts)):
            for parameter in [one for ref in refs if (one := ref()) is not None]:
                if parameter.requires_grad:
                    handle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]  # in torch
                    self._handles.append(handle)
        if self._is_watching:
            for parameter in self._watched:
                note = partial(self._note, id(parameter))
                self._handles.append(parameter.register_hook(note))  # type: ignore[no-untyped-call]  # in torch

    def end(self) -> bool:
        """Take that it is over, or has failed; return whether the newest `on_last` was right."""
        self._detach()
        if self._is_watching:
            self._is_watching = False
            self._learn(self._newest)
            return self._reported is not None and self._reported == self._newest
        if self._reported is None:
            self._until_watch = min(self._until_watch, self._patience)
        else:
            self._misses = 0
        return self._reported is not None

    def _learn(self, newest: int | None) -> None:
        """Take whose gradient was the last, by a pass in which all were watched."""
        self._misses = self._misses + 1 if newest is None else 0
        if newest is None or newest in self._known:  # a pass of another module tells nothing new
            self._patience = min(2 * self._patience, WATCH_EVERY)
        else:
            self._patience = 1
            refs = {id(one): weakref.ref(one) for one in self._parameters()}
            if newest in refs:
                self._known[newest] = refs[newest]
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
        # modules have passes by turns: this one's may be the next
        self._until_watch = WATCH_EVERY if self._known else 0

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
    def _report(self, parameter: Tensor) -> None:
        self._reported = id(parameter)
        self._on_last()

    @uncompiled
    def _part(self, _parameter: Tensor) -> None:
        self._reported = None  # what came before was not the last
        self._on_part()


def _cuts(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return those that cut a pass into parts: in the order in which the module registers them."""
    if len(parameters) < PARTS:
        return []
    return [parameters[len(parameters) * part // PARTS] for part in range(1, PARTS)]


def _traces_hooks() -> bool:
    """Return whether the compiler would take hooks in, and compile the backward pass anew."""
    compiled: Any = sys.modules.get("torch._dynamo.compiled_autograd")
    config: Any = sys.modules.get("torch._dynamo.config")
    return getattr(compiled, "compiled_autograd_enabled", False) or getattr(
        config, "compiled_autograd", False
    )
