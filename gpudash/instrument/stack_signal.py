"""Lets this process write the stack of its main thread to a file when it gets a signal.

`faulthandler` writes it in the signal handler, and needs no thread, no GIL and no torch. So a
process that waits in C++ for other ranks answers too, and goes on waiting. Other threads are left
out: walking the frames of a running thread can crash the process.
"""

import faulthandler
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

from gpudash.instrument.endpoint import Descriptor
from gpudash.rendezvous import Rendezvous

_answering: tuple[int, int, Path, Descriptor] | None = None
"""Process id, signal, file, and the file's descriptor."""


def answer(rendezvous: Rendezvous) -> None:
    """Answer an unused signal from now on. Raises OSError if no file can be made.

    Do nothing if no signal is free, or if this is not the main thread.
    """
    global _answering  # noqa: PLW0603  # a process has its signals once
    pid, path = os.getpid(), rendezvous.stack(os.getpid())
    if _answering is not None and _answering[0] == pid:
        return
    # a fork inherits its parent's signal and handler
    number = _answering[1] if _answering is not None else _reserved()
    if number is None:
        return
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC, 0o600)
    faulthandler.register(number, fd, all_threads=False, chain=False)
    os.write(fd, f"{number} {fd}\n".encode())
    _answering = (pid, number, path, Descriptor(fd))


def give_way() -> None:
    """Stop answering if the script now handles the signal itself, or has closed the file."""
    if _answering is None:
        return
    _, number, path, descriptor = _answering
    is_ignored = signal.getsignal(number) is signal.SIG_IGN
    if is_ignored and descriptor.is_ours:
        return
    if is_ignored:
        faulthandler.unregister(number)
    with suppress(OSError):
        path.unlink()


def _reserved() -> int | None:
    """Return a real-time signal that is neither handled, nor ignored, nor blocked here.

    It is ignored from now on. So it kills nothing after the interpreter has shut down.
    """
    used = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, mask = line.partition(":")
        if name in ("SigCgt", "SigIgn", "SigBlk"):
            used |= int(mask, 16)
    # other tools tend to choose the first and the last
    numbers = range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1)
    number = next((number for number in numbers if not used >> number - 1 & 1), None)
    if number is None or threading.current_thread() is not threading.main_thread():
        return None
    signal.signal(number, signal.SIG_IGN)
    return number
