"""Keeps `torch.compile` out of our own functions, where a script's compiled code calls them.

As `torch.compiler.disable` does, which would import the compiler into every script. What it uses
is private: a test says if it goes, and then those scripts alone are not measured.
"""

from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R], *, deeply: bool = True) -> Callable[P, R]:
    """Have the function run as it stands; `deeply`: and all that it calls."""
    own = cast(FunctionType, function)
    own.__dict__["_torchdynamo_disable"] = True  # where a graph would take it in
    with suppress(ImportError, AttributeError):
        from torch._C._dynamo import eval_frame  # noqa: PLC0415  # not in every torch

        private: Any = eval_frame
        skip, default = private._FrameAction.SKIP, private._FrameAction.DEFAULT  # noqa: SLF001  # torch names them no other way
        strategy = private._FrameExecStrategy(skip, skip if deeply else default)  # noqa: SLF001  # as above
        private.set_code_exec_strategy(own.__code__, strategy)
    return function
