"""Imports of large libraries."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Leave imports alone: they make no garbage, and looking for it takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # else libraries complain of leaks at Python's end
        gc.enable()
