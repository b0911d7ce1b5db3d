"""Follows models whose `forward` the script calls by its name, past `nn.Module.__call__`.

The method of their class is replaced: an attribute of the model itself would be pickled with it.
Classes of torch are left alone, and all classes once anything was compiled.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.compiler import is_dynamo_compiling

from ..instrument.guard import without_ours
from ..levers.training_objects import Root
from .roots import CallListener, remove_hook


class NamedForwards:
    """Hooks the classes of models that are not called, for a while; then of those by name alone."""

    def __init__(self, roots: Iterable[Root], listener: CallListener) -> None:
        self._listener = listener
        self._roots = {id(root.module): root for root in roots}
        self._undo: dict[type[nn.Module], Callable[[], None]] = {}
        for root in self._roots.values():
            module = root.module
            if module is not None and not type(module).__module__.startswith("torch."):
                self._hook(type(module))

    def settle(self) -> bool:
        """Unhook the classes of models whose `forward` was not called by its name.

        Return whether any is left.
        """
        named = {key: root for key, root in self._roots.items() if root.is_named}
        self._roots = named
        for root in named.values():
            remove_hook(root)  # a call comes by `forward` too
        kept = {type(root.module) for root in named.values()}
        for kind in [kind for kind in self._undo if kind not in kept]:
            self._undo.pop(kind)()
        return bool(named)

    def _hook(self, kind: type[nn.Module]) -> None:
        if kind in self._undo:
            return
        own, forward = "forward" in vars(kind), kind.forward
        listener = self._listener

        @wraps(forward)
        def hooked(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling():
                return forward(module, *args, **kwargs)
            noted = False
            try:
                root = self._roots.get(id(module))
                if root is not None and root.module is module and self._is_wanted(root, module):
                    noted = listener.called_by_name(root, module, args, kwargs)
                return forward(module, *args, **kwargs)
            except BaseException as error:
                without_ours(error)
                raise
            finally:
                if noted:
                    listener.returned()

        def undo() -> None:
            if vars(kind).get("forward") is not hooked:
                return  # the script has replaced it since
            if own:
                kind.forward = forward
            else:
                del kind.forward

        kind.forward = hooked
        self._undo[kind] = undo

    def _is_wanted(self, root: Root, module: nn.Module) -> bool:
        trains = root.is_frozen or (module.training and torch.is_grad_enabled())
        return self._listener.wants_calls or (self._listener.is_skipping and not trains)
