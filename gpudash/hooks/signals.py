"""Recognises exceptions that the script's signal handlers raise inside our code.

They must reach the script. `KeyboardInterrupt` and `SystemExit` pass `except Exception` anyway, but
a handler may raise any other exception.
"""

import signal
from types import CodeType
from typing import Any


def is_from_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised the exception, and not our own code."""
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    """Return the code of a function, a method or a callable object."""
    if not hasattr(handler, "__code__") and callable(handler):
        handler = type(handler).__call__
    return getattr(handler, "__code__", None)
