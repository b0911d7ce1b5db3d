"""Finds the line of the script that called torch."""

import ast
import contextlib
import dis
import linecache
import os
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import torch

from .guard import OURS

TORCH = f"{Path(torch.__file__).parent}{os.sep}"
INTERNALS = (TORCH, contextlib.__file__, "<frozen ", "<eval_with_key>")
"""Files whose lines are not the script author's."""
GENERATED = f"{os.sep}torchinductor_"
"""Part of the path of code that the compiler generated."""


class CallSite(NamedTuple):
    """Where a script called torch. Taking one is cheap: the name of the callee is found later."""

    code: CodeType
    line: int
    instruction: int
    torch_function: str
    """The Python function of torch's that the script called; empty for one in C."""

    @property
    def what(self) -> str:
        return _callee(self.code, self.instruction) or self.torch_function


def call_site(frame: FrameType | None, *, through_ours: bool = False) -> CallSite | None:
    """None also if the nearest frame outside of torch is ours, unless `through_ours`."""
    torch_function = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(OURS):
            if not through_ours:
                return None
        elif file.startswith(TORCH):
            torch_function = frame.f_code.co_name
        elif not file.startswith(INTERNALS) and GENERATED not in file:
            return CallSite(frame.f_code, frame.f_lineno, frame.f_lasti, torch_function)
        frame = frame.f_back
    return None


def _callee(code: CodeType, instruction: int) -> str:
    operation = dis.opname[code.co_code[instruction]]
    if "JUMP" in operation or operation in ("TO_BOOL", "UNARY_NOT"):  # `if tensor:`
        return "bool"
    match _expression(code, instruction):
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name
        case ast.Subscript():
            return "index"
    return ""


def _expression(code: CodeType, instruction: int) -> ast.expr | None:
    positions = getattr(code, "co_positions", tuple)  # before Python 3.11 there is none
    first, last, begin, end = next(islice(positions(), instruction // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [linecache.getline(code.co_filename, n).encode() for n in range(first, last + 1)]
    lines[-1] = lines[-1][:end]  # columns count bytes
    lines[0] = lines[0][begin:]
    try:
        return ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):  # the file has changed since
        return None
