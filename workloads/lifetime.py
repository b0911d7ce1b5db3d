"""A process that must not outlive the one that started it."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends.

    Works while C code holds the GIL. It fires when the parent's *thread* that started this
    process exits, so start from a thread that lives on. Without prctl (not Linux) this does
    nothing.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the call
        os.kill(os.getpid(), signal.SIGKILL)
