"""Keeps gpudash out of the script's way: no failure of ours reaches it, no frame its tracebacks.

What its signal handlers raise inside our code does reach it: `KeyboardInterrupt` and `SystemExit`
pass `except Exception` anyway, but a handler may raise any other exception. A forked child never
destroys CUDA objects that it inherits: freeing a CUDA event aborts its process, and a DataLoader's
worker is such a child.
"""

import ctypes
import os
import signal
from pathlib import Path
from types import CodeType
from typing import Any

from .patching import uncompiled


def is_from_handler(error: BaseException) -> bool:
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    if not hasattr(handler, "__code__") and callable(handler):
        handler = type(handler).__call__
    return getattr(handler, "__code__", None)


def without_ours(error: BaseException) -> None:
    """Call it where a bare `raise` follows, which adds none of our frames again."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS):
        trace = trace.tb_next
    error.__traceback__ = trace


OURS = f"{Path(without_ours.__code__.co_filename).parents[1]}{os.sep}"
"""Begins the names of our files in tracebacks; `__file__` may be another one, see `inject`."""


class _Unseen:
    """Removes our frames from the traceback of an exception that leaves the block."""

    @uncompiled
    def __enter__(self) -> None:
        pass

    @uncompiled
    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            without_ours(error)


unseen = _Unseen()
"""A context manager: an exception that leaves its block shows no frame of ours."""


def never_destroy(*things: Any) -> None:
    """Keep these objects for as long as the process lives, also while Python shuts down."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))
