"""What gpudash has replaced in torch, to be put back; which of ours torch leaves uncompiled."""

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

_undone_by: list[Callable[[], object]] = []
_MISSING = object()


def replace(owner: Any, name: str, ours: Any) -> None:
    """Set an attribute until `undo`. What another tool has put in its place stays there."""
    before = vars(owner).get(name, _MISSING)
    setattr(owner, name, ours)

    def put_back() -> None:
        if vars(owner).get(name) is not ours:
            return
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    at_undo(put_back)


def at_undo(action: Callable[[], object]) -> None:
    _undone_by.append(action)


def undo() -> None:
    """Undo the newest first. An action that fails keeps no other from its turn."""
    while _undone_by:
        with suppress(Exception):
            _undone_by.pop()()


def after_fork(method: Callable[[], object]) -> None:
    """Call a method in each forked child, without keeping its object alive."""
    weak = weakref.WeakMethod(method)

    def call() -> None:
        living = weak()
        if living is not None:
            living()

    os.register_at_fork(after_in_child=call)


P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R], *, deeply: bool = True) -> Callable[P, R]:
    """Have torch run the function uncompiled; `deeply`: with everything that it calls."""
    own = cast(FunctionType, function)
    own.__dict__["_torchdynamo_disable"] = True  # where a graph would inline it
    with suppress(ImportError, AttributeError):
        from torch._C._dynamo import eval_frame  # noqa: PLC0415  # missing in some versions of torch

        private: Any = eval_frame
        if not hasattr(private, "set_code_exec_strategy"):  # before torch 2.7: this frame alone
            private.skip_code(own.__code__)
            return function
        skip, default = private._FrameAction.SKIP, private._FrameAction.DEFAULT  # noqa: SLF001  # torch has no public name
        strategy = private._FrameExecStrategy(skip, skip if deeply else default)  # noqa: SLF001  # as above
        private.set_code_exec_strategy(own.__code__, strategy)
    return function
