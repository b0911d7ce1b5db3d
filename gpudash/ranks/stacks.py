"""Read a stack that a process has sent, in the format of `faulthandler`: pure functions of text."""

import re
from itertools import islice
from pathlib import PurePath
from typing import NamedTuple

FRAME = re.compile(r'  File (?:"(.*)"|\?\?\?), line (\d+|\?\?\?) in (.*)')
MOST_FRAMES = 100
"""As many as a process sends; text from elsewhere may be endless."""
LIBRARY = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]|[\\/]lib(?:64)?[\\/]python3\.\d+[\\/]"
    r"|[\\/]gpudash[\\/](?:inject|instrument|levers|protocol|script|training|worker)[\\/]"
    r"|^<(?:frozen |string>)"
)
"""Matches paths of code that is not the script author's."""
PHASES = re.compile(
    r"[\\/]torch[\\/](?:nn[\\/]modules[\\/]module|_tensor|autograd|optim|utils[\\/]data)"
)
"""Matches files of torch that are at work in a phase of a step, …"""
LEARNS = re.compile(r"[\\/]torch[\\/](?:_tensor|autograd[\\/](?:__init__|graph))\.py")
"""… and in the backward pass."""
COLLECTIVES = ("distributed_c10d.py", "_functional_collectives.py")
"""Files of torch.distributed whose functions without an underscore are collectives."""
HIDDEN = {
    "_verify_param_shape_across_processes": "DDP's check of the parameters",
    "_sync_module_states": "a broadcast of the parameters",
    "_distributed_broadcast_coalesced": "a broadcast of the buffers",
    "_store_based_barrier": "a barrier",
}
"""Functions of torch that wait for the other ranks, in words for a script's author."""
BACKWARD = "backward"
"""A backward pass: a rank computes in it, or waits in C++ for the other ranks' gradients (DDP)."""


class Frame(NamedTuple):
    """One call of a stack."""

    file: str
    line: str
    """`???` if unknown."""
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"

    @property
    def where(self) -> str:
        return f"{PurePath(self.file).name}:{self.line}"


def frames(text: str) -> tuple[Frame, ...]:
    found = filter(None, map(FRAME.fullmatch, text.splitlines()))
    parts = (one.groups() for one in islice(found, MOST_FRAMES))
    return tuple(Frame(file or "???", line, function) for file, line, function in parts)


def script_frame(stack: tuple[Frame, ...]) -> Frame | None:
    """Prefer the script author's code to the innermost call."""
    written = (frame for frame in stack if not LIBRARY.search(frame.file))
    return next(written, stack[0] if stack else None)


def own_frame(stack: tuple[Frame, ...]) -> Frame | None:
    """None in a phase of torch's, where the script's code is another part of the step."""
    return _innermost(stack, PHASES)


def work_frame(stack: tuple[Frame, ...]) -> Frame | None:
    """None in a backward pass: its work is that of other lines."""
    return _innermost(stack, LEARNS)


def _innermost(stack: tuple[Frame, ...], without: re.Pattern[str]) -> Frame | None:
    for frame in stack:
        if not LIBRARY.search(frame.file):
            return frame
        if without.search(frame.file):
            return None
    return None


def collective(stack: tuple[Frame, ...]) -> str:
    """Name it as the script calls it; empty if the process waits in none."""
    found = ""
    for frame in stack:
        if not LIBRARY.search(frame.file):
            break
        name = PurePath(frame.file).name
        if frame.function in HIDDEN:
            found = HIDDEN[frame.function]
        elif "distributed" in PurePath(frame.file).parts and name in COLLECTIVES:
            found = found if frame.function.startswith("_") else frame.function
        elif frame.function == "_engine_run_backward":
            found = found or BACKWARD
    return found


def doing(stack: tuple[Frame, ...]) -> str:
    """Return a predicate such as `is in backward (train.py:8)`."""
    frame, waits_in = script_frame(stack), collective(stack)
    if frame is None:
        return "is at no known place"
    if waits_in == BACKWARD:
        return f"is in {BACKWARD} ({frame.where})"
    if waits_in:
        return f"waits in {waits_in} ({frame.where})"
    if any({"_dynamo", "_inductor"} & {*PurePath(one.file).parts} for one in stack):
        return f"compiles ({frame.where})"
    if any(one.file.endswith("dataloader.py") and one.function == "_get_data" for one in stack):
        return f"waits for its loader's workers ({frame.where})"
    inside = frame.function != "<module>"
    return f"is in {frame.function} ({frame.where})" if inside else f"is at {frame.where}"
