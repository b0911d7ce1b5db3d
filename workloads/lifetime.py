"""Ending a process with its parent."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent ends, however that ends.

    This works even while C code holds the GIL. It acts when the parent's *thread* that started this
    process exits, so start it from a thread that lives on. Outside of Linux this does nothing.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent ended before the call
        os.kill(os.getpid(), signal.SIGKILL)
