"""Tells gpudash where this process's main thread is, at a Unix socket.

A thread sleeps until it is asked, and reads the frames under the GIL, so that nothing runs
meanwhile. A wait in C++ for other ranks has released the GIL, so such a process answers. A signal
handler would answer without the GIL too, but frames change while it walks them: of a busy process
one in a thousand of `faulthandler`'s stacks ended in a segmentation fault (CPython 3.11.7).
"""

import _thread
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from random import Random
from types import FrameType

from ..rendezvous import Rendezvous
from .endpoint import Endpoint

MOST_FRAMES = 100
PATIENCE_S = 1.0
"""Seconds that who asks may take to read."""
WITHIN_S = (0.0, 0.05)
"""From the request to the look: about a step, so that any of its moments is met."""
SWITCH_S = 2e-4
"""For so long a thread keeps the GIL meanwhile. Reading the frames takes less."""
RANDOM = Random()


class _Answering:
    """What answers in this process; a fork has its parent's, and forgets it."""

    pid: int | None = None
    endpoint: Endpoint | None = None


def answer(rendezvous: Rendezvous) -> None:
    """May raise OSError. Only the first call in a process counts."""
    pid = os.getpid()
    if _Answering.pid == pid:
        return
    if _Answering.pid is None:
        os.register_at_fork(after_in_child=_forget)
    endpoint = Endpoint(rendezvous.stack(pid))
    _Answering.pid, _Answering.endpoint = pid, endpoint
    # a thread begins with its parent's mask: it is to take no signal that the script waits for
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        # as no `threading.Thread`, it is in no count of the script's threads
        _thread.start_new_thread(_serve, (endpoint,))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end() -> None:
    endpoint, _Answering.endpoint = _Answering.endpoint, None
    if endpoint is not None:
        _Answering.pid = 0  # a later `answer` begins anew; children have their hook already
        endpoint.end()


def _forget() -> None:
    if _Answering.endpoint is not None:
        _Answering.endpoint.forget()
        _Answering.endpoint = None


def _serve(endpoint: Endpoint) -> None:
    main = threading.main_thread().ident or 0
    while True:
        try:
            connection = endpoint.wait()
        except (OSError, ValueError):  # the script has closed it, and its folder is gone; or `end`
            endpoint.forget()
            return
        with suppress(OSError), connection:
            connection.settimeout(PATIENCE_S)
            text = _stack_of(_at_any_moment().get(main))
            connection.sendall(text.encode(errors="backslashreplace"), socket.MSG_NOSIGNAL)


def _at_any_moment() -> dict[int, FrameType]:
    """Return the frames of a random moment, not of one at which the GIL was free.

    A thread that computes keeps it for 5 ms at a time: looks would meet launches alone.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        time.sleep(RANDOM.uniform(*WITHIN_S))
        return sys._current_frames()  # noqa: SLF001  # documented
    finally:
        sys.setswitchinterval(before)


def _stack_of(frame: FrameType | None) -> str:
    """Return the calls from this one outwards, as `faulthandler` writes them: a line each."""
    lines: list[str] = []
    while frame is not None and len(lines) < MOST_FRAMES:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}\n')
        frame = frame.f_back
    return "".join(lines)
