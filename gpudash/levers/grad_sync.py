"""Moves which backward passes of a step average gradients in DDP: each, or the last alone.

How many passes an optimizer's step has is told by the step before. Of more passes, the later ones
are averaged too. After fewer, what was kept back is averaged here, before gradients are clipped or
used. So weights are those without the lever, up to rounding. Only what a script itself does to
gradients before a shorter step sees those of its own rank.

A rank that waits for a collective that another one does not begin waits for ever. So each decides
by its calls of the model and of the optimizer alone, which are the same on all ranks, and begins
and ends together with the others. One rank alone may take a norm within a step. So gradients are
averaged for a norm only if its calls have ended steps and nothing else: then the optimizer comes
next, for which the other ranks average them, if they have not done so for a norm of their own.
Nothing here needs a hook of the tracker: that may fail on one.
"""

import sys
import traceback
import weakref
from collections.abc import Callable
from functools import cache, wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from ..instrument import patching
from ..instrument.guard import unseen
from ..instrument.patching import uncompiled
from ..protocol.records import Settings, replace
from ..protocol.training import Lever
from ..training.commanded import Refusal
from .compile import COMPILED, FSDP
from .known import EACH, LAST
from .offers import UNKNOWN, choice
from .optimizer import makes_sparse_gradients
from .training_objects import Root, TrainingObjects

CLIPS = "_group_tensors_by_device_and_dtype"
"""All functions of torch that clip gradients, or take their norm, call it first. It is private."""
ALREADY = "the script averages them once a step already"
SHARDED = "FSDP could not average after a shorter step what it had kept back"


class _Passes:
    """The passes of a model since its optimizer last stepped."""

    def __init__(self, module: DistributedDataParallel) -> None:
        self._module = weakref.ref(module)
        self._weights = {id(one) for one in _averaged(module)}
        self._count = 0
        self._usual = 0  # passes of the step before; 0: not known
        self._is_apart = False  # gradients of this rank alone are among those of the step
        self._hooks: list[RemovableHandle] = []  # until a backward pass has begun to average
        # norms, by the calls that took them
        self._taken = dict[int, int]()  # in this step: after how many passes first
        self._ends, self._within = set[int](), set[int]()  # that ended steps, or were within one
        self.keeps_back = True
        """Passes before the last one are not averaged."""
        self.is_kept_back = False
        """The newest pass is not averaged."""

    def begin(self, module: DistributedDataParallel) -> None:
        self._count += 1
        self._unhook()
        joins: Any = getattr(module, "_join_config", None)  # ranks without data answer each pass
        may_keep = self.keeps_back and joins is not None and not joins.enable
        self.is_kept_back = may_keep and self._count < self._usual
        if self.is_kept_back:
            self._is_apart = True
        elif self._is_apart:
            weight = _averaged(module)[0]
            self._hooks.append(weight.register_post_accumulate_grad_hook(self._averages))  # type: ignore[no-untyped-call]  # in torch

    @uncompiled
    def _averages(self, _weight: Tensor) -> None:
        self._is_apart = False

    def step_begins(self, optimizer: Optimizer, closure: object) -> None:
        held = (one for group in optimizer.param_groups for one in group["params"])
        if self._weights.isdisjoint(map(id, held)):
            return
        self._unhook()
        self._average()
        self._within |= {one for one, after in self._taken.items() if after < self._count}
        self._ends = (self._ends | self._taken.keys()) - self._within
        self._taken.clear()
        self._usual, self._count = self._count or self._usual, 0
        self.keeps_back &= closure is None  # else its passes come within the step

    def _unhook(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def norm_begins(self, calls: int) -> None:
        self._taken.setdefault(calls, self._count)
        if calls in self._ends:
            self._average()

    def _average(self) -> None:
        module = self._module()
        if not self._is_apart or module is None:
            return
        self._is_apart = False
        group: Any = module.process_group
        with torch.no_grad():
            for weight in _averaged(module):
                own = weight.grad
                whole = torch.zeros_like(weight) if own is None else own.contiguous()
                distributed.all_reduce(whole.div_(group.size()), group=group)
                if own is not None and whole is not own:
                    own.copy_(whole)


def _averaged(module: DistributedDataParallel) -> list[nn.Parameter]:
    ignored = module.parameters_to_ignore
    named = nn.Module.named_parameters(module.module)
    return [one for name, one in named if one.requires_grad and name not in ignored]


_passes: WeakKeyDictionary[Any, _Passes] = WeakKeyDictionary()
"""Of each model that was ever moved."""


def is_averaged(module: DistributedDataParallel) -> bool:
    """Return whether the backward pass of the newest forward pass averages gradients."""
    passes = _passes.get(module)
    is_kept_back = passes is not None and passes.is_kept_back
    return bool(module.require_forward_param_sync) and not is_kept_back


@cache
def _hook_calls() -> None:
    patching.replace(DistributedDataParallel, "forward", _followed(DistributedDataParallel.forward))
    patching.replace(clip_grad, CLIPS, _after_averaging(getattr(clip_grad, CLIPS)))
    patching.at_undo(register_optimizer_step_pre_hook(_step_begins).remove)
    patching.at_undo(_hook_calls.cache_clear)


@uncompiled
def _step_begins(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    closure = next(iter((*args[1:], *kwargs.values())), None)
    for passes in list(_passes.values()):
        passes.step_begins(optimizer, closure)


def _followed(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def followed(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
        passes = _passes.get(self)
        if passes is None or not (self.training and torch.is_grad_enabled()):
            return forward(self, *args, **kwargs)
        own = self.require_backward_grad_sync
        with unseen:
            passes.begin(self)
            self.require_backward_grad_sync = own and not passes.is_kept_back
            try:
                return forward(self, *args, **kwargs)
            finally:
                self.require_backward_grad_sync = own
                self.require_forward_param_sync = own  # buffers are sent as without the lever

    return uncompiled(followed, deeply=False)


def _after_averaging(group: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(group)
    def averaged(*args: Any, **kwargs: Any) -> Any:
        calls = _calls()
        for passes in list(_passes.values()):
            passes.norm_begins(calls)
        return group(*args, **kwargs)

    return uncompiled(averaged, deeply=False)


def _calls() -> int:
    """Return a number for the lines of all calls in progress."""
    calls = traceback.walk_stack(sys._getframe(2))  # noqa: SLF001  # without this module's own
    return hash(tuple((frame.f_code.co_filename, line) for frame, line in calls))


class GradSync:
    """The lever `grad_sync`. All ranks apply a value between the same two steps."""

    def update(self, found: TrainingObjects) -> None:
        self._found = found
        self._model, self._why_not = _model(found)

    @property
    def offers(self) -> tuple[Lever, ...]:
        why = None if self._is_moved else self._refusal()
        offer = choice(
            "grad_sync",
            self._own,
            {EACH: why, LAST: why},
            summary="Which backward passes of an optimizer step average the gradients of the "
            "ranks: each, or the last alone. Helps where a step has several and communication is "
            "exposed.",
            source="DistributedDataParallel.no_sync",
            helps=((LAST, "fewer reductions"),),
        )
        return (replace(offer, share=1 - 1 / (self._found.backwards or 1)),)

    @property
    def settings(self) -> Settings:
        return {"grad_sync": LAST if self._is_moved else self._own}

    def apply(self, wanted: Settings) -> None:
        module, keeps_back = self._module, wanted["grad_sync"] == LAST
        if module is None or keeps_back == self._is_moved:
            return
        if module not in _passes:
            if why := self._refusal():  # a block's values are not asked for one by one
                raise Refusal(f"grad_sync: {why}")
            _hook_calls()
            _passes[module] = _Passes(module)
        _passes[module].keeps_back = keeps_back

    @property
    def _module(self) -> DistributedDataParallel | None:
        return None if self._model is None else self._model()

    @property
    def _own(self) -> str:
        averages, module = self._found.averages, self._module
        if module is None:
            return UNKNOWN
        is_last = averages is not None and averages < (self._found.backwards or 1)
        return LAST if is_last and module not in _passes else EACH

    @property
    def _is_moved(self) -> bool:
        module = self._module
        return module is not None and module in _passes and _passes[module].keeps_back

    def _refusal(self) -> str | None:
        found = self._found
        if self._why_not is not None or self._own == LAST:
            return self._why_not or ALREADY
        if not found.optimizers:
            return "no optimizer was seen"
        if found.scaler:
            return "a GradScaler looks at gradients before the optimizer steps"
        if found.backwards is None:
            return "the number of backward passes of a step is not known, or varies"
        return "a step has one backward pass" if found.backwards == 1 else None


def _model(
    found: TrainingObjects,
) -> tuple["weakref.ref[DistributedDataParallel] | None", str | None]:
    """Return the model of the ranks, and why its passes must all be averaged."""
    if found.world_size == 1:
        return None, "one process trains, which sends no gradients"
    modules = [one for root in found.roots if (one := root.module) is not None]
    kinds = {
        kind.__name__ for one in modules for part in one.modules() for kind in type(part).__mro__
    }
    if not kinds.isdisjoint(FSDP):
        return None, SHARDED
    if not any(isinstance(one, DistributedDataParallel) for one in modules):
        return None, "the script calls no DistributedDataParallel"
    if len(modules) > 1:
        return None, "several models train"
    [root], [module] = found.roots, modules
    assert isinstance(module, DistributedDataParallel)
    return weakref.ref(module), _needs_each(root, module)


def _needs_each(root: Root, module: DistributedDataParallel) -> str | None:
    logged: dict[str, Any] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]  # noqa: SLF001  # documented
    weights = {type(one).__name__ for one in nn.Module.parameters(module)}
    reasons = {
        COMPILED: root.compiled,
        "its gradients are sparse": makes_sparse_gradients(root),
        "it looks for weights that a pass has not used": module.find_unused_parameters,
        "its graph is static": module.static_graph,
        "a communication hook averages its gradients": logged.get("comm_hook"),
        "its weights are DTensors": "DTensor" in weights,
        "it computes in mixed precision of its own": module.mixed_precision,
        "torch.compile averages its gradients": getattr(module, "_use_python_reducer", False),
        "this torch clips gradients in another way": not hasattr(clip_grad, CLIPS),
    }
    return next((why for why, applies in reasons.items() if applies), None)
