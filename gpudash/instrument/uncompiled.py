"""Keeps `torch.compile` from compiling our functions when a script's compiled code calls them.

`torch.compiler.disable` would do the same, but imports the compiler into every script. What is used
here is private. If it goes, a test fails, and only scripts with compiled code are not measured.
"""

from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

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
