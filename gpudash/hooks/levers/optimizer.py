"""How the optimizer updates the weights: one fused kernel, a few foreach kernels, or one by one.

A checkpoint or a copy taken meanwhile holds what the script had: its flags, and its device of
`step`. A shallow copy shares its groups and is moved with them, and put back.
"""

import copy
import inspect
import sys
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.optim import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
)
from torch.utils.hooks import RemovableHandle

from gpudash.hooks.found import Found, Root
from gpudash.hooks.levers.offers import Option, choice
from gpudash.hooks.levers.rehearsal import reason
from gpudash.protocol import Settings

WITH_FUSED = (SGD, Adam, AdamW, Adagrad)
"""They differ from their own fused form by less than 1e-7, and a subclass may compute another
thing."""
WITHOUT_FUSED = (Adadelta, Adamax, NAdam, RAdam, RMSprop)
"""They have the two other forms."""
FLAGS = {
    "fused": {"fused": True, "foreach": False},
    "foreach": {"fused": False, "foreach": True},
    "single": {"fused": False, "foreach": False},
}
AMP = "_step_supports_amp_scaling"
OWN = (AMP, "_need_device_dtype_check_for_fused")
"""Attributes that a fused form sets on its optimizer."""
STATE = "__getstate__"
"""Which pickle and copies ask for, first of the optimizer itself."""
Group: TypeAlias = dict[str, Any]


class OptimizerForm:
    """The lever `fused_optimizer`."""

    def __init__(self) -> None:
        self._value = "script"
        self._moved: list[_Moved] = []

    def update(self, found: Found) -> None:
        """See Family."""
        self._optimizers = [weakref.ref(optimizer) for optimizer in found.optimizers]
        self._roots = found.roots

    @property
    def options(self) -> tuple[Option, ...]:
        """See Family."""
        impossible = {value: self._refusal(value) for value in FLAGS}
        return (
            choice(
                "fused_optimizer",
                {value: why for value, why in impossible.items() if why},
                ("script", *FLAGS),
                summary="How the weights are updated: as the script has it; fused, all in one "
                "kernel; foreach, a few kernels for all; or single, some for each weight. Helps "
                "where many small launches bound the step.",
                source="torch.optim.AdamW(fused=True)",
            ),
        )

    @property
    def settings(self) -> Settings:
        """See Family."""
        return {"fused_optimizer": self._value}

    def apply(self, wanted: Settings) -> None:
        """See Family."""
        value = wanted["fused_optimizer"]
        if value == self._value:
            return
        for moved in self._moved:
            moved.put_back()
        self._moved = []
        if value != "script":
            self._moved = [_Moved(optimizer, FLAGS[value]) for optimizer in self._live()]
            for moved in self._moved:  # two may share their groups: both know the script's flags
                moved.move()
        self._value = value

    def _live(self) -> Iterator[Optimizer]:
        return (optimizer for ref in self._optimizers if (optimizer := ref()))

    def _refusal(self, value: str) -> str | None:
        optimizers = list(self._live())
        if not optimizers:
            return "no optimizer was seen"
        for optimizer in optimizers:
            forms = WITH_FUSED if value == "fused" else WITH_FUSED + WITHOUT_FUSED
            if type(optimizer) not in forms:
                return f"{type(optimizer).__name__} has no fused form"
            why = _why_not(optimizer, value)
            if why:
                return why
        if value == "fused" and any(map(_makes_sparse_gradients, self._roots)):
            return "its gradients are sparse"
        return None


class _Moved:
    """An optimizer whose flags are not its own."""

    def __init__(self, optimizer: Optimizer, flags: dict[str, bool]) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._flags = {name: on for name, on in flags.items() if name in optimizer.defaults}
        self._attributes = {name: vars(optimizer)[name] for name in OWN if name in vars(optimizer)}
        self._hooks: tuple[RemovableHandle, ...] = (
            optimizer.register_state_dict_post_hook(self._as_the_script_had_it),
            # what is loaded has the flags of the script, as what is saved
            optimizer.register_load_state_dict_post_hook(self._move_what_is_loaded),
        )
        self._default = self._flags_of(optimizer.defaults)
        self._learn_groups(optimizer)

    def move(self) -> None:
        """Give the optimizer these flags."""
        optimizer = self._optimizer()
        if optimizer is None:
            return
        optimizer.defaults.update(self._flags)
        vars(optimizer)[STATE] = self._state
        for group in optimizer.param_groups:
            group.update(self._flags)
        _place_steps(optimizer.state, optimizer.param_groups)
        vars(optimizer)[AMP] = self._flags.get("fused", False)  # a GradScaler asks who unscales

    def put_back(self) -> None:
        """Give the optimizer its own flags back."""
        optimizer = self._optimizer()
        for hook in self._hooks:
            hook.remove()
        if optimizer is None:
            return
        optimizer.defaults.update(self._default)
        for group, own in zip(optimizer.param_groups, self._own(optimizer), strict=True):
            group.update(own)
        _place_steps(optimizer.state, optimizer.param_groups)
        for name in (*OWN, STATE):
            vars(optimizer).pop(name, None)
        vars(optimizer).update(self._attributes)

    def _learn_groups(self, optimizer: Optimizer) -> None:
        self._groups = {id(group): self._flags_of(group) for group in optimizer.param_groups}

    def _move_what_is_loaded(self, optimizer: Optimizer) -> None:
        self._learn_groups(optimizer)
        self.move()

    def _flags_of(self, group: Group) -> Group:
        """Return what a group, or the default of groups to come, has for the flags moved."""
        return {name: group.get(name) for name in self._flags}

    def _own(self, optimizer: Optimizer) -> list[Group]:
        """Return the script's flags of each group; those added meanwhile have the default ones."""
        return [self._groups.get(id(group), self._default) for group in optimizer.param_groups]

    def _state(self) -> dict[str, Any]:
        """Return what a copy is made of, as the script would have it."""
        optimizer = self._optimizer()
        assert optimizer is not None, "whom it is asked of"
        caller = sys._getframe(1)  # noqa: SLF001  # nothing else tells a shallow copy from a pickle
        if caller.f_code is copy.copy.__code__:
            return self._shared_with_a_copy(optimizer)
        states = defaultdict(dict, {one: dict(state) for one, state in optimizer.state.items()})
        pairs = zip(optimizer.param_groups, self._own(optimizer), strict=True)
        groups = [{**group, **own} for group, own in pairs]
        _place_steps(states, groups)
        defaults = {**optimizer.defaults, **self._default}
        return {"defaults": defaults, "state": states, "param_groups": groups}

    def _shared_with_a_copy(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return what a shallow copy is made of: the optimizer's own groups, moved and put back.

        The copy's hook has the optimizer live on, which those are put back by.
        """

        def saved_by(copied: Optimizer, saved: Group) -> Group:
            shared = copied.param_groups is optimizer.param_groups  # until another one is loaded
            return self._as_the_script_had_it(copied, saved) if shared else saved

        hooks: OrderedDict[int, Any] = OrderedDict()
        handle = RemovableHandle(hooks)
        hooks[handle.id] = saved_by
        self._hooks = (*(one for one in self._hooks if one.hooks_dict_ref()), handle)
        state: dict[str, Any] = Optimizer.__getstate__(optimizer)
        return {**state, "_optimizer_state_dict_post_hooks": hooks}

    def _as_the_script_had_it(self, optimizer: Optimizer, saved: Group) -> Group:
        states = {index: dict(state) for index, state in saved["state"].items()}
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        groups = []
        for group, own in zip(saved["param_groups"], self._own(optimizer), strict=True):
            groups.append({**group, **own})
            for index in group["params"]:
                _place_step(states.get(index, {}), weights[index], groups[-1])
        return {**saved, "state": states, "param_groups": groups}


def _place_steps(states: Mapping[Tensor, dict[str, Any]], groups: Iterable[Group]) -> None:
    for group in groups:
        for weight in group["params"]:
            _place_step(states.get(weight, {}), weight, group)


def _place_step(state: dict[str, Any], weight: Tensor, group: Group) -> None:
    """Put a weight's count of steps where an optimizer with these flags has it."""
    step = state.get("step")
    if not isinstance(step, Tensor):
        return
    fused = group.get("fused")
    on_device = fused or group.get("capturable")
    doubles = not fused and torch.get_default_dtype() == torch.float64
    dtype = torch.float64 if doubles else torch.float32
    state["step"] = step.to(weight.device if on_device else "cpu", dtype)


def _why_not(optimizer: Optimizer, value: str) -> str | None:
    """Ask the class itself, with one small weight of each kind that there is."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    if value == "fused" and not all(weight.is_floating_point() for weight in weights):
        return "its weights are not all real numbers"
    kinds = {(weight.device, weight.dtype) for weight in weights}
    known = inspect.signature(type(optimizer)).parameters
    for group in optimizer.param_groups:
        if value == "foreach" and group.get("differentiable"):  # which fails at a step alone
            return "its steps are differentiable"
        options = {name: given for name, given in (group | FLAGS[value]).items() if name in known}
        options["params"] = [_like(*kind) for kind in kinds]
        try:
            type(optimizer)(**options)
        except (RuntimeError, ValueError) as error:
            return reason(error)
    return None


def _like(device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.zeros(1, device=device, dtype=dtype, requires_grad=True)


def _makes_sparse_gradients(root: Root) -> bool:
    module = root.module
    return module is not None and any(getattr(m, "sparse", False) for m in module.modules())
