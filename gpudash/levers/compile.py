"""Compiles a root's call with torch.compile. The module's class, keys and pickles stay the same."""

import functools
import importlib.util
import os
import shutil
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import nn

from ..protocol.records import Settings
from ..protocol.training import Lever
from .offers import absent, on_off
from .training_objects import Call, Root, TrainingObjects, modules_of

Backend: TypeAlias = str | Callable[..., Any]
SUMMARY = (
    "torch.compile the model: fuses pointwise work into few kernels. Compiling stops the training "
    "for seconds to minutes, once."
)
SOURCE = "torch.compile"
COMPILED = "the model is compiled already"
FSDP = {"FullyShardedDataParallel", "FSDPModule"}
WRAPPED = {
    **dict.fromkeys(FSDP, "the model is sharded by FSDP"),
    "DeepSpeedEngine": "DeepSpeed runs the model",
    "DataParallel": "DataParallel runs the model",
}
"""Classes whose calls do more than a forward pass."""
VARIANTS = 64
"""How many shapes, precisions and layouts torch.compile keeps. At its default of 8 it would fall
back to eager, with a warning that the user does not see."""


class Compile:
    """The lever `compile`."""

    def __init__(self, backend: Backend = "inductor") -> None:
        self._backend = backend
        self._on = False
        self._compiled: Call | None = None
        self._script_limit = 0

    def update(self, found: TrainingObjects) -> None:
        self._roots = found.roots
        self._device = found.device
        self._is_shared = found.world_size > 1
        self._own = any(_refusal(root) == COMPILED for root in self._roots)

    @property
    def offers(self) -> tuple[Lever, ...]:
        why, own = self._refusal(), on_off(self._own)
        if why and not self._on:
            return (absent("compile", why, summary=SUMMARY, source=SOURCE, value=own),)
        offer = Lever(
            name="compile",
            kind="switch",
            default=own,
            summary=SUMMARY,
            source=SOURCE,
            helps=(("on", "fewer kernels"),),
            numerics=True,
        )
        return (offer,)

    @property
    def settings(self) -> Settings:
        return {"compile": on_off(self._on or self._own)}

    def apply(self, wanted: Settings) -> None:
        on = wanted["compile"] == "on" and not self._own
        if on == self._on:
            return
        self._on = on
        config: Any = torch._dynamo.config  # noqa: SLF001  # its public place
        if on:
            self._script_limit = config.recompile_limit
            config.recompile_limit = max(VARIANTS, self._script_limit)
        else:
            config.recompile_limit = self._script_limit

    def around(self) -> Callable[[Call], Call] | None:
        if not self._on:
            return None
        return self._compiled_call

    def _compiled_call(self, call: Call) -> Call:
        if getattr(call, "__func__", None) is not nn.Module._call_impl:  # noqa: SLF001  # same
            return call  # the script has compiled it since
        if self._compiled is None:
            # one function for all modules, so that it keeps none alive
            self._compiled = torch.compile(_called, backend=self._backend)
        return functools.partial(self._compiled, call.__self__)  # type: ignore[attr-defined]  # bound

    def _refusal(self) -> str | None:
        if not modules_of(self._roots):
            return "no model was found"
        if self._is_shared:
            return "each rank would compile for itself, and a slow one lets collectives time out"
        for root in self._roots:
            why = _refusal(root)
            if why:
                return why
        if not _has_compiler(self._device):
            return "torch.compile finds no C++ compiler here (or, on a GPU, no triton)"
        return None


def _called(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    """Call the module in a frame of ours: torch.compile would skip torch's own `_call_impl`."""
    return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]  # noqa: SLF001  # what Module.compile compiles


def _refusal(root: Root) -> str | None:
    if root.compiled:
        return COMPILED
    whole = root.module
    for module in whole.modules() if whole is not None else ():
        own = module is not whole and module.__dict__.get("_compiled_call_impl")
        if own or hasattr(module, "_orig_mod"):
            return COMPILED
        if isinstance(module, torch.jit.ScriptModule):
            return "the model is a ScriptModule"
        for kind in type(module).__mro__:
            if kind.__name__ in WRAPPED:
                return WRAPPED[kind.__name__]
    return None


def _has_compiler(device: torch.device) -> bool:
    compiler = os.environ.get("CXX") or "c++"
    found = any(shutil.which(name) for name in (compiler, "g++", "clang++", "gcc"))
    return found and (device.type != "cuda" or importlib.util.find_spec("triton") is not None)
