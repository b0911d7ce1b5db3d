"""Marks in a trace which module is being called, for a few steps.

Compiled modules are not marked: a hook would make torch compile them again.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from threading import get_ident
from typing import Any

import torch
from torch import nn

from .patching import uncompiled

MARK = "nn.Module: "
"""The prefix that torch itself uses where it records stacks."""
MOST_MODULES = 10_000


class ModuleMarks:
    """Marks calls from `start` to `stop`, and leaves no hook behind."""

    def __init__(self, roots: Iterable[nn.Module]) -> None:
        self._roots = tuple(roots)
        self._handles: list[Any] = []
        self._open: dict[tuple[int, int], list[Any]] = {}  # by thread and module
        self._names: dict[int, str] = {}

    def start(self) -> None:
        from .flops import anything_compiled  # noqa: PLC0415  # slow

        if anything_compiled():
            return
        begin, end = _Hook(uncompiled(self._begin)), _Hook(uncompiled(self._end))
        for root in self._roots:
            for path, module in root.named_modules():
                if id(module) in self._names or len(self._names) >= MOST_MODULES:
                    continue
                self._names[id(module)] = MARK + name_of(path, module)
                with suppress(Exception):  # a scripted module may refuse
                    self._handles.append(module.register_forward_pre_hook(begin, prepend=True))
                    self._handles.append(module.register_forward_hook(end, always_call=True))

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        mine = [key for key in self._open if key[0] == get_ident()]
        for mark in [one for key in mine for one in self._open[key]][::-1]:  # stopped within a call
            mark.__exit__(None, None, None)
        self._open.clear()

    def _begin(self, module: nn.Module, _args: Any) -> None:
        name = self._names.get(id(module))
        if name is None:  # `nn.DataParallel` calls shallow copies
            return
        private: Any = torch._C  # noqa: SLF001  # three times as fast as record_function
        mark = private._profiler._RecordFunctionFast(name)  # noqa: SLF001  # as above
        mark.__enter__()
        self._open.setdefault((get_ident(), id(module)), []).append(mark)

    def _end(self, module: nn.Module, _args: Any, _output: Any) -> None:
        if marks := self._open.get((get_ident(), id(module))):
            marks.pop().__exit__(None, None, None)


class _Hook:
    """A hook on a module. A copy or a pickle of it does nothing."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, str]]:
        return getattr, (nullcontext(), "__exit__")  # takes any arguments, and needs no gpudash


def name_of(path: str, module: nn.Module) -> str:
    """Return the name that similar layers share: `layers.linear` for `layers.3.linear`."""
    parts = path.split(".")
    kept = [part for part in parts if part and not part.isdecimal()]
    if not path or parts[-1].isdecimal():
        kept.append(type(module).__name__)
    return ".".join(kept)
