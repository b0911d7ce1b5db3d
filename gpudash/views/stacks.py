"""What a stack tells that Python's faulthandler has written: pure functions of its text."""

import re
from itertools import islice
from pathlib import PurePath
from typing import NamedTuple

FRAME = re.compile(r'  File (?:"(.*)"|\?\?\?), line (\d+|\?\?\?) in (.*)')
MOST_FRAMES = 100
"""As faulthandler writes; a text from elsewhere may go on for ever."""
LIBRARY = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]|[\\/]lib(?:64)?[\\/]python3\.\d+[\\/]"
    r"|[\\/]gpudash[\\/](?:hooks|inject|instrument|worker)[\\/]|^<frozen "
)
"""In the path of what no script's author has written."""
COLLECTIVES = ("distributed_c10d.py", "_functional_collectives.py")
"""Files of torch.distributed whose functions without an underscore are collectives."""
HIDDEN = {
    "_verify_param_shape_across_processes": "DDP's check of the parameters",
    "_sync_module_states": "a broadcast of the parameters",
    "_distributed_broadcast_coalesced": "a broadcast of the buffers",
    "_store_based_barrier": "a barrier",
}
"""Functions of torch that wait for the other ranks, and what they are to a script's author."""
BACKWARD = "backward"
"""Where DDP waits in C++ for what the other ranks have computed; and where a rank computes."""


class Frame(NamedTuple):
    """One call of a stack."""

    file: str
    line: str
    """`???` where it is not known."""
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"

    @property
    def where(self) -> str:
        """File and line, in short."""
        return f"{PurePath(self.file).name}:{self.line}"


def frames(text: str) -> tuple[Frame, ...]:
    """Return the calls of the stack, innermost first; what is no frame is passed over."""
    found = filter(None, map(FRAME.fullmatch, text.splitlines()))
    parts = (one.groups() for one in islice(found, MOST_FRAMES))
    return tuple(Frame(file or "???", line, function) for file, line, function in parts)


def script_frame(stack: tuple[Frame, ...]) -> Frame | None:
    """Return the innermost call that the script's author has written; else the innermost."""
    written = (frame for frame in stack if not LIBRARY.search(frame.file))
    return next(written, stack[0] if stack else None)


def collective(stack: tuple[Frame, ...]) -> str:
    """Return what the process waits in for other ranks, as the script calls it; empty for none."""
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
    """Return what the process does, as a clause that a rank is the subject of."""
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
