"""Exceptions that a signal handler of the script's raises: they reach the script, wherever we are.

`KeyboardInterrupt` and `SystemExit` do by themselves; a handler may raise any other too.
"""

import signal
from types import CodeType
from typing import Any


def is_from_handler(error: BaseException) -> bool:
    """Tell whether a signal handler has raised it, and none of our own code."""
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """Return what a function, a method or an object that can be called runs."""
    if not hasattr(handler, "__code__") and callable(handler):
        handler = type(handler).__call__
    return getattr(handler, "__code__", None)
