"""What a forked child inherits of ours is never destroyed there: CUDA cannot be used in it.

A CUDA event that is freed in a forked child aborts the process, such as a DataLoader's worker.
"""

import ctypes
from typing import Any


def never_destroy(*things: Any) -> None:
    """Keep these for as long as the process lives, also while Python shuts down."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))
