"""The training process: our own loop, measured by the instrument."""

import sys

from gpudash.imports import prefer_own_modules

_for_workload = sys.path[:]
prefer_own_modules()
import msgspec  # noqa: E402, F401  # the project may have another one; all else is the workload's

sys.path[:] = _for_workload
