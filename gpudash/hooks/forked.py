"""Keeps a forked child from destroying CUDA objects that it inherits from its parent.

CUDA cannot be used in a forked child: freeing a CUDA event there aborts the process. A DataLoader's
worker is such a child.
"""

import ctypes
from typing import Any


def never_destroy(*things: Any) -> None:
    """Keep these objects for as long as the process lives, also while Python shuts down."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))
