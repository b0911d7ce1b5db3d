"""When an app has done all that it was asked to: known from its event loop, not from a clock.

Textual's own `wait_for_idle` watches for 20 ms how busy the process is. That is long for one key,
and on a machine that lets the process wait it takes that for idleness.
"""

import asyncio
from math import inf

from textual._context import active_app

SOON_S = 0.02
"""A timer due within this is part of what was asked: a paint, a step of a scrolling."""


async def idle(*_: float) -> None:
    """Wait until the event loop has nothing to do, now or soon."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0)
        if loop._ready:
            continue
        due_s = min((one.when() for one in loop._scheduled if not one.cancelled()), default=inf)
        wait_s = due_s - loop.time()
        if wait_s > SOON_S or active_app.get()._exit:  # of an app that leaves, timers only repeat
            return
        await asyncio.sleep(wait_s)
