"""The end of a training process: with its parent, and at once."""

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
    """Let the kernel kill this process when its parent ends, however that ends.

    This works even while C code holds the GIL. It acts when the parent's *thread* that started this
    process exits, so start it from a thread that lives on. Outside of Linux this does nothing.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent ended before the call
        os.kill(os.getpid(), signal.SIGKILL)


def end(code: int) -> NoReturn:
    """End this process as Python does, but free no memory: freeing torch's modules takes 1 s."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  # as multiprocessing does
    atexit._run_exitfuncs()  # noqa: SLF001  # it has no public name
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # no stream, a full or a closed one
            stream.flush()
    os._exit(code)
