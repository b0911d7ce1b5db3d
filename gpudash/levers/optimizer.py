"""Moves how the optimizer updates weights: in one fused kernel, in foreach kernels, or one by one.

A checkpoint or a deep copy taken meanwhile has the script's own flags, and its device of `step`.
"""

import copy
import inspect
import sys
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
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
from torch.optim.optimizer import _foreach_supported_types
from torch.utils._foreach_utils import _get_foreach_kernels_supported_devices
from torch.utils.hooks import RemovableHandle

from ..protocol.records import Settings
from ..protocol.training import SCRIPT, Lever
from .offers import UNKNOWN, choice
from .rehearsal import reason
from .training_objects import Root, TrainingObjects, alive

WITH_FUSED = (SGD, Adam, AdamW, Adagrad)
"""Their fused form differs by less than 1e-7. Subclasses are excluded, as they may compute
something else."""
WITHOUT_FUSED = (Adadelta, Adamax, NAdam, RAdam, RMSprop)
"""They have only the forms foreach and single."""
FLAGS = {
    "fused": {"fused": True, "foreach": False},
    "foreach": {"fused": False, "foreach": True},
    "single": {"fused": False, "foreach": False},
}
AMP = "_step_supports_amp_scaling"
OWN = (AMP, "_need_device_dtype_check_for_fused")
"""Attributes that a fused optimizer sets on itself."""
STATE = "__getstate__"
"""Pickle and copy look this up on the optimizer itself first."""
Group: TypeAlias = dict[str, Any]


class OptimizerForm:
    """The lever `fused_optimizer`."""

    def __init__(self) -> None:
        self._moved_to: str | None = None
        self._moved: list[_Moved] = []

    def update(self, found: TrainingObjects) -> None:
        self._optimizers = found.optimizer_refs
        self._roots = found.roots
        if self._moved_to is None:  # else the flags are the lever's
            self._own = _own_form(found.optimizers)

    @property
    def offers(self) -> tuple[Lever, ...]:
        return (
            choice(
                "fused_optimizer",
                self._own,
                {value: self._refusal(value) for value in FLAGS},
                summary="How the weights are updated: fused, all in one kernel; foreach, a few "
                "kernels for all; or single, some for each weight. Helps where many small launches "
                "bound the step.",
                source="torch.optim.AdamW(fused=True)",
                helps=(("fused", "one update"), ("foreach", "one update")),
            ),
        )

    @property
    def settings(self) -> Settings:
        return {"fused_optimizer": self._moved_to or self._own}

    def apply(self, wanted: Settings) -> None:
        wants = wanted["fused_optimizer"]
        value = wants if wants in FLAGS and wants != self._own else None
        if value == self._moved_to:
            return
        for moved in self._moved:
            moved.put_back()
        self._moved = []
        if value is not None:
            self._moved = [_Moved(optimizer, FLAGS[value]) for optimizer in alive(self._optimizers)]
            for moved in self._moved:  # two may share their groups: both know the script's flags
                moved.move()
        self._moved_to = value

    def _refusal(self, value: str) -> str | None:
        optimizers = alive(self._optimizers)
        if not optimizers:
            return "no optimizer was seen"
        for optimizer in optimizers:
            forms = WITH_FUSED if value == "fused" else WITH_FUSED + WITHOUT_FUSED
            if type(optimizer) not in forms:
                return f"{type(optimizer).__name__} has no fused form"
            why = _why_not(optimizer, value)
            if why:
                return why
        if value == "fused" and any(map(makes_sparse_gradients, self._roots)):
            return "its gradients are sparse"
        return None


def _own_form(optimizers: Iterable[Optimizer]) -> str:
    """Return the form in which all these optimizers update all weights, as the script has it."""
    optimizers = tuple(optimizers)
    if not optimizers or any(type(one) not in WITH_FUSED + WITHOUT_FUSED for one in optimizers):
        return UNKNOWN
    forms = {_form(group) for one in optimizers for group in one.param_groups}
    return forms.pop() if len(forms) == 1 else SCRIPT


def _form(group: Group) -> str:
    for form in ("fused", "foreach"):
        if group.get(form):
            return form
    is_left_open = group.get("fused") is None and group.get("foreach") is None
    kinds = {(type(weight), weight.device.type) for weight in group["params"]}
    # torch's exceptions: these need each weight's own operations
    needs_single = group.get("differentiable") or (
        isinstance(group.get("lr"), Tensor) and group.get("capturable") is False
    )
    return default_form(kinds) if is_left_open and not needs_single else "single"


def default_form(kinds: Iterable[tuple[type, str]]) -> str:
    """Return the form that torch takes for these weights if no flag is set."""
    devices = _get_foreach_kernels_supported_devices()
    fits = all(kind in _foreach_supported_types and where in devices for kind, where in kinds)
    return "foreach" if fits else "single"


class _Moved:
    """An optimizer with flags that are not the script's."""

    def __init__(self, optimizer: Optimizer, flags: dict[str, bool]) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._flags = {name: on for name, on in flags.items() if name in optimizer.defaults}
        self._attributes = {name: vars(optimizer)[name] for name in OWN if name in vars(optimizer)}
        self._hooks: tuple[RemovableHandle, ...] = (
            optimizer.register_state_dict_post_hook(self._as_the_script_had_it),
            # loaded groups have the script's flags, as saved ones do
            optimizer.register_load_state_dict_post_hook(self._move_loaded),
        )
        self._default = self._flags_of(optimizer.defaults)
        self._learn_groups(optimizer)

    def move(self) -> None:
        optimizer = self._optimizer()
        if optimizer is None:
            return
        optimizer.defaults.update(self._flags)
        vars(optimizer)[STATE] = self._state
        for group in optimizer.param_groups:
            group.update(self._flags)
        _place_steps(optimizer.state, optimizer.param_groups)
        vars(optimizer)[AMP] = self._flags.get("fused", False)  # tells a GradScaler who unscales

    def put_back(self) -> None:
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

    def _move_loaded(self, optimizer: Optimizer) -> None:
        self._learn_groups(optimizer)
        self.move()

    def _flags_of(self, group: Group) -> Group:
        return {name: group.get(name) for name in self._flags}

    def _own(self, optimizer: Optimizer) -> list[Group]:
        """Return the script's flags of each group; groups added meanwhile have its defaults."""
        return [self._groups.get(id(group), self._default) for group in optimizer.param_groups]

    def _state(self) -> dict[str, Any]:
        """Return the state that a pickle or a deep copy would have without the lever."""
        optimizer = self._optimizer()
        assert optimizer is not None, "the caller is its pickling or copying"
        caller = sys._getframe(1)  # noqa: SLF001  # nothing else separates a shallow copy from a pickle
        if caller.f_code is copy.copy.__code__:
            return self._shared_with_a_copy(optimizer)
        states = defaultdict(dict, {one: dict(state) for one, state in optimizer.state.items()})
        pairs = zip(optimizer.param_groups, self._own(optimizer), strict=True)
        groups = [{**group, **own} for group, own in pairs]
        _place_steps(states, groups)
        defaults = {**optimizer.defaults, **self._default}
        return {"defaults": defaults, "state": states, "param_groups": groups}

    def _shared_with_a_copy(self, optimizer: Optimizer) -> dict[str, Any]:
        """Have a shallow copy keep the optimizer alive: their groups are put back through it."""

        def saved_by(copied: Optimizer, saved: Group) -> Group:
            shared = copied.param_groups is optimizer.param_groups  # until it loads others
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
    """Move a weight's step count to the device and dtype that these flags need."""
    step = state.get("step")
    if not isinstance(step, Tensor):
        return
    fused = group.get("fused")
    on_device = fused or group.get("capturable")
    doubles = not fused and torch.get_default_dtype() == torch.float64
    dtype = torch.float64 if doubles else torch.float32
    state["step"] = step.to(weight.device if on_device else "cpu", dtype)


def _why_not(optimizer: Optimizer, value: str) -> str | None:
    """Try the optimizer's class on small weights."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    if value == "fused" and not all(weight.is_floating_point() for weight in weights):
        return "its weights are not all real numbers"
    kinds = {(weight.device, weight.dtype) for weight in weights}
    known = inspect.signature(type(optimizer)).parameters
    for group in optimizer.param_groups:
        if value == "foreach" and group.get("differentiable"):  # fails only in a step
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


def makes_sparse_gradients(root: Root) -> bool:
    module = root.module
    return module is not None and any(getattr(m, "sparse", False) for m in module.modules())
