"""Imports of large libraries, and of gpudash's own where a project has others of these names."""

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  # importing pathlib is slow
"""The folder of this gpudash. PYTHONPATH may name it: it stays where it is."""


@contextmanager
def without_collecting() -> Iterator[None]:
    """Save time: imports leave no garbage, and with collecting they take 10 % longer."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # else libraries report leaks at exit
        gc.enable()


def prefer_own_modules() -> None:
    """Look last in the folders that are meant for the user's Python: PYTHONPATH's, and this.

    The variable stays as it is, for the processes that train.
    """
    meant_for_user = {*os.environ.get("PYTHONPATH", "").split(os.pathsep), ""}
    last = {*map(_absolute, meant_for_user)} - {ROOT}
    sys.path.sort(key=lambda folder: _absolute(folder) in last)  # the others keep their order


def _absolute(folder: str) -> str:
    try:
        return os.path.abspath(folder)  # noqa: PTH100  # as Python makes PYTHONPATH's absolute
    except OSError:  # the working folder has been removed
        return folder
