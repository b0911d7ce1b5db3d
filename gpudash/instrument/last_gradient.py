"""Detects when the last gradient of a backward pass is computed, and three moments before.

In DistributedDataParallel the last collective begins with that gradient, so the rest of the pass
is exposed communication. Watching all parameters for one pass shows whose gradient comes last. From
then on that parameter alone gets a hook. In a model with branches there are several such. Three
more gradients cut the pass into parts, at the same parameters in all processes: a slow process
shows in the part in which it is slow, before the others wait for it.

Between passes nothing of ours is on a parameter to be pickled, copied, compiled or kept alive.
"""

import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .patching import uncompiled

WATCH_EVERY = 256
"""Watch all parameters again after at most so many passes: 5 µs for each parameter."""
TRIES = 8
"""Stop watching after so many watched passes in a row without a gradient."""
MOST_KNOWN = 8
PARTS = 4
"""Parts of a pass. More would cost more, and say hardly more."""


class LastGradient:
    """Calls `on_last` on autograd's thread, where the newest call in a pass counts.

    `on_part` is called at the end of each part of a pass. Neither must raise.
    """

    def __init__(
        self,
        module: nn.Module,
        on_last: Callable[[], object],
        on_part: Callable[[], object],
    ) -> None:
        self._on_last = on_last
        self._on_part = on_part
        cuts = self._cuts = dict[int, weakref.ref[Tensor]]()  # by id
        known = self._known = dict[int, weakref.ref[Tensor]]()  # by id, the newest last

        def forget(_: object) -> None:  # a weakref keeps `to` from swapping tensors
            cuts.clear()
            known.clear()

        self._module = weakref.ref(module, forget)
        self._handles: list[RemovableHandle] = []
        self._watched: list[Tensor] = []
        self._is_watching = False
        self._until_watch = 0  # passes
        self._patience = 1  # passes without the last gradient until all are watched again
        self._misses = 0
        # ids of parameters, in the pass in progress
        self._newest: int | None = None
        self._reported: int | None = None

    @property
    def has_given_up(self) -> bool:
        return self._misses >= TRIES

    def begin(self) -> None:
        self._detach()
        self._newest = self._reported = None
        if self.has_given_up or _traces_hooks():
            return
        self._until_watch -= 1
        self._is_watching = self._until_watch < 0
        if self._is_watching:
            self._watched = self._parameters()
            self._cuts.clear()
            self._cuts.update((id(one), weakref.ref(one)) for one in _cuts(self._watched))
        cuts = [ref for one, ref in self._cuts.items() if one not in self._known]
        for hook, refs in ((self._report_last, self._known.values()), (self._report_part, cuts)):
            for parameter in [one for ref in refs if (one := ref()) is not None]:
                if parameter.requires_grad:
                    handle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]  # in torch
                    self._handles.append(handle)
        if self._is_watching:
            for parameter in self._watched:
                note = partial(self._note_gradient, id(parameter))
                self._handles.append(parameter.register_hook(note))  # type: ignore[no-untyped-call]  # in torch

    def end(self) -> bool:
        """Return whether the newest `on_last` was for the last gradient."""
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
        self._misses = self._misses + 1 if newest is None else 0
        if newest is None or newest in self._known:  # another module's pass says nothing new
            self._patience = min(2 * self._patience, WATCH_EVERY)
        else:
            self._patience = 1
            refs = {id(one): weakref.ref(one) for one in self._parameters()}
            if newest in refs:
                self._known[newest] = refs[newest]
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
        # modules may take turns, so watch the next pass too
        self._until_watch = WATCH_EVERY if self._known else 0

    def _parameters(self) -> list[Tensor]:
        module = self._module()
        parameters = () if module is None else nn.Module.parameters(module)
        return [one for one in parameters if one.requires_grad and one.is_leaf]

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for parameter in self._watched:
            if not parameter._backward_hooks:  # noqa: SLF001  # those of `register_hook`
                parameter._backward_hooks = None  # noqa: SLF001  # even empty, it costs 0.5 µs a pass
        self._watched.clear()

    @uncompiled
    def _note_gradient(self, parameter: int, _gradient: Tensor) -> None:
        self._newest = parameter

    @uncompiled
    def _report_last(self, parameter: Tensor) -> None:
        self._reported = id(parameter)
        self._on_last()

    @uncompiled
    def _report_part(self, _parameter: Tensor) -> None:
        self._reported = None  # the reported gradient was not the last
        self._on_part()


def _cuts(parameters: Sequence[Tensor]) -> list[Tensor]:
    if len(parameters) < PARTS:
        return []
    return [parameters[len(parameters) * part // PARTS] for part in range(1, PARTS)]


def _traces_hooks() -> bool:
    compiled: Any = sys.modules.get("torch._dynamo.compiled_autograd")
    config: Any = sys.modules.get("torch._dynamo.config")
    return getattr(compiled, "compiled_autograd_enabled", False) or getattr(
        config, "compiled_autograd", False
    )
