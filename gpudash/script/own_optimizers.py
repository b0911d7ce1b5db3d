"""Hooks the optimizers of libraries whose optimizers are not PyTorch's.

A class is hooked once backward passes have come without an optimizer of PyTorch's. A library that
is not listed, or that has renamed its method, leaves each backward pass a step by itself.
"""

import sys
from collections.abc import Callable, Hashable
from functools import cache, wraps
from typing import Any, Protocol

from ..instrument import patching
from ..instrument.guard import unseen
from ..instrument.uncompiled import uncompiled

HOOKED = (
    ("fastai.optimizer", "Optimizer", "step"),
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),
)
"""Module, class and the method that updates the weights."""


class UpdateListener(Hashable, Protocol):
    """What receives the updates."""

    def own_update_begins(self, optimizer: Any, /) -> bool:
        """Note that a library's optimizer is about to update; return whether to report the end."""

    def own_update_ends(self) -> bool:
        """Note that it has updated."""


def hook_own_optimizers(listener: UpdateListener) -> None:
    """Install the hooks on optimizers of the libraries that the script has imported."""
    for module, owner, name in HOOKED:
        kind = getattr(sys.modules.get(module), owner, None)
        if callable(getattr(kind, name, None)):
            _patch(kind, name, listener)


@cache
def _patch(kind: Any, name: str, listener: UpdateListener) -> None:
    patching.replace(kind, name, _hooked(getattr(kind, name), listener))
    patching.at_undo(_patch.cache_clear)


def _hooked(function: Callable[..., Any], listener: UpdateListener) -> Callable[..., Any]:
    @wraps(function)
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        noted = False
        with unseen:
            try:
                noted = listener.own_update_begins(self)
                return function(self, *args, **kwargs)
            finally:
                if noted:
                    listener.own_update_ends()

    return uncompiled(hooked, deeply=False)
