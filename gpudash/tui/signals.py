"""Leave when a signal asks for it, also where the terminal holds everything up.

A terminal that is gone, or takes nothing more, blocks whoever writes to it, Textual's event
loop included: there a handler of the loop's own would never run.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

PATIENCE_S = 5.0
"""Until the event loop is given up."""


def leave_on_signals(leave: Callable[[], None], close: Callable[[], None]) -> None:
    """From now on SIGTERM, SIGQUIT, and SIGHUP as the terminal closes, `leave`: to return at once.

    Where that has not ended the process in time, `close` is called on another thread, and then
    the process ends with exit code 1.
    """
    asked = threading.Event()

    def obey(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            return
        asked.set()
        threading.Thread(target=insist, name="gpudash-leaving", daemon=True).start()
        leave()

    def insist() -> None:
        time.sleep(PATIENCE_S)
        close()
        os._exit(1)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, obey)
