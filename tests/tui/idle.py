"""When an app has done all that it was asked to: known from its event loop, not from a clock.

Textual's own `wait_for_idle` watches for 20 ms how busy the process is. That is long for one key,
and on a machine that lets the process wait it takes that for idleness.

A frame is painted when somebody looks at it: most of those in between are seen by no test, and
painting them was half of all that these tests computed.
"""

import asyncio
from collections.abc import Iterator
from math import inf
from weakref import WeakKeyDictionary, WeakSet

from textual._context import active_app, visible_screen_stack
from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.strip import Strip

SOON_S = 0.02
"""A timer due within this is part of what was asked: a step of a scrolling."""

painted_at_once: WeakSet[App[object]] = WeakSet()
"""Apps of which a test wants to see that painting fails."""

_frames: WeakKeyDictionary[App[object], list[Strip]] = WeakKeyDictionary()
_refresh = Screen._compositor_refresh


_handlers: dict[tuple[type, str], list[tuple[type, str]] | None] = {}
_get_dispatch_methods = MessagePump._get_dispatch_methods


def known_handlers(pump: MessagePump, name: str, message: Message) -> Iterator[tuple]:
    """Stand in for Textual's own search for handlers, in all bases at each of its messages."""
    key = type(pump), name
    if key not in _handlers:
        _handlers[key] = _plain_handlers(*key)
    plain = _handlers[key]
    if plain is None:
        yield from _get_dispatch_methods(pump, name, message)
        return
    for cls, attribute in plain:
        if message._no_default_action:
            break
        yield cls, vars(cls)[attribute].__get__(pump, cls)


def _plain_handlers(pump: type, name: str) -> list[tuple[type, str]] | None:
    """Return the handlers that are found by their name; None if some are found by `on`."""
    if any(vars(cls).get("_decorated_handlers") for cls in pump.__mro__):
        return None
    both = ((cls, f"_{name}" if f"_{name}" in vars(cls) else name) for cls in pump.__mro__)
    return [(cls, attribute) for cls, attribute in both if vars(cls).get(attribute)]


def paint_when_looked_at(screen: Screen[object]) -> None:
    """Stand in for Textual's own refresh: leave the painting to `frame_of`."""
    app = screen.app
    _frames.pop(app, None)
    if screen is not app.screen or app in painted_at_once:  # a lower one only tells the one above
        _refresh(screen)
    else:
        app.post_display_hook()


def frame_of(app: App[object]) -> list[Strip]:
    """What an app shows now, row by row."""
    if app not in _frames:
        with app.screen._context():
            visible_screen_stack.set([])  # behind a dialog there is nothing to read
            _frames[app] = app.screen._compositor.render_strips()
    return _frames[app]


async def idle(*_: float) -> None:
    """Wait until the event loop has nothing to do, now or soon."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(0)
        if loop._ready:
            continue
        due_s = min((one.when() for one in loop._scheduled if not one.cancelled()), default=inf)
        wait_s = due_s - loop.time()
        if wait_s > SOON_S or active_app.get()._exit:  # timers of one that leaves only repeat
            return
        await asyncio.sleep(wait_s)
