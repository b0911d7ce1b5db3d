"""When an app has done all that it was asked to: known from its event loop, not from a clock.

Textual's own `wait_for_idle` watches for 20 ms how busy the process is. That is long for one key,
and on a machine that lets the process wait it takes that for idleness.

A frame is painted then, as a terminal shows it that is slower than the loop: those in between,
of which Textual paints up to four for a dialog, would be half of all that these tests compute.
"""

import asyncio
from math import inf

from textual._context import active_app
from textual.app import App
from textual.screen import Screen

SOON_S = 0.02
"""A timer due within this is part of what was asked: a step of a scrolling."""

_refresh = Screen._compositor_refresh


def paint_when_idle(screen: Screen[object]) -> None:
    """Stand in for Textual's own refresh: leave the painting to `idle`."""
    if screen is screen.app.screen:
        screen.app._owes_a_frame = True
    else:
        _refresh(screen)  # it only tells the screen above it


async def idle(*_: float) -> None:
    """Wait until the event loop has nothing to do, now or soon, and the last frame is painted."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0)
        if loop._ready:
            continue
        due_s = min((one.when() for one in loop._scheduled if not one.cancelled()), default=inf)
        wait_s = due_s - loop.time()
        app = active_app.get()
        if app._exit:  # timers of one that leaves only repeat
            return
        if wait_s > SOON_S:
            if not _painted(app):
                return
        else:
            await asyncio.sleep(wait_s)


def _painted(app: App[object]) -> bool:
    """Paint the frame that is owed; return whether there was one."""
    if not getattr(app, "_owes_a_frame", False):
        return False
    app._owes_a_frame = False
    with app.screen._context():
        _refresh(app.screen)
    return True
