"""End the dashboard on a signal, even if the terminal blocks the event loop.

Writing to a terminal that is gone or stalled blocks Textual's event loop. A signal handler of the
loop would never run then.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

PATIENCE_S = 5.0
"""How long the event loop has to end the process, in seconds."""


def leave_on_signals(leave: Callable[[], None], close: Callable[[], None]) -> None:
    """Call `leave` on SIGTERM, SIGQUIT and SIGHUP; it must return at once.

    If the process has not ended after `PATIENCE_S`, `close` is called on another thread, and the
    process ends with exit code 1.
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
