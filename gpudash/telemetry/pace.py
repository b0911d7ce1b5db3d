"""A steady pace for the threads that read."""

import math
import threading
import time
from collections.abc import Iterator


def ticks(period_s: float, stopped: threading.Event) -> Iterator[None]:
    """Yield at once, and every `period_s` until stopped.

    The deadlines are absolute, so the work between two ticks does not make the period drift.
    Ticks missed during long work are skipped.
    """
    due_s = time.monotonic()
    while not stopped.wait(max(0.0, due_s - time.monotonic())):
        yield
        late_s = time.monotonic() - due_s
        due_s += period_s * max(1, math.ceil(late_s / period_s))
