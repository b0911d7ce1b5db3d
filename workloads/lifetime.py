"""A process that trains: it must not outlive the one that started it, and ends at once."""

import atexit
import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import NoReturn

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


def end(code: int) -> NoReturn:
    """End this process as Python does, but free nothing: what torch imports would take 1 s."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  # as multiprocessing does
    atexit._run_exitfuncs()  # noqa: SLF001  # it has no public name
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # none, full or closed
            stream.flush()
    os._exit(code)
