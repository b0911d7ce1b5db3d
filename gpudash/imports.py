"""Imports of large libraries."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Disable garbage collection: imports leave no garbage, and collecting takes 10 % longer."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # else libraries report leaks at exit
        gc.enable()
