"""The two ways to run the app: until the user or a signal ends it, and headless for one frame.

Writing to a gone or stalled terminal blocks Textual's loop: no signal handler of it would run.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from gpudash.protocol.commands import Plan
from gpudash.snapshot import ENDED, Snapshot
from gpudash.tui import preferences
from gpudash.tui.app import Dashboard

if TYPE_CHECKING:  # the first frame does not wait for them
    from textual.pilot import Pilot

    from gpudash.run.session import Session

SAVING_S = 1.0
"""How long to wait, in seconds, until preferences are saved: an unreachable home may block."""
ENDING_S = 5.0
"""How long the event loop has to end the process after a signal, in seconds."""
LOOKS_EVERY_S = 0.1
TRAINED_S = 5.0
"""How long a training without a planned end is watched, in seconds."""


def run_dashboard(app: Dashboard) -> int:
    # a lambda, as reading `engine` opens it, and the first frame must not wait for that
    _leave_on_signals(app.leave_soon, lambda: app.control.engine.close())  # noqa: PLW0108  # above
    app.run()
    preferences.save(app.remembered()).join(SAVING_S)
    return app.return_code or 0


def _leave_on_signals(leave: Callable[[], None], close: Callable[[], None]) -> None:
    """Call `leave` on SIGTERM, SIGQUIT and SIGHUP; it must return at once.

    If the process has not ended after `ENDING_S`, `close` is called on another thread, and the
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
        time.sleep(ENDING_S)
        close()
        os._exit(1)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, obey)


# ── `--once` ───────────────────────────────────────────────────────────────────────────────


def is_time(snapshot: Snapshot) -> bool:
    """Return whether the run has ended or, without a planned end, has trained for `TRAINED_S`."""
    if snapshot.state in ENDED:
        return True
    has_end = snapshot.planned_steps is not None or snapshot.planned_s is not None
    return not has_end and (snapshot.training_s or 0.0) >= TRAINED_S


def one_frame(
    open_engine: Callable[[], "Session"],
    plan: Plan,
    *,
    size: tuple[int, int],
    in_color: bool,
    ascii_only: bool,
) -> tuple[str, Snapshot]:
    """Take a finished run's frame from its last moment of training: later there are no rates."""
    app = Dashboard(open_engine, plan, ascii_only=ascii_only)
    frame: list[str] = []
    found = app.control.snapshot

    async def look(pilot: "Pilot[object]") -> None:
        nonlocal found
        while not is_time(found):
            await asyncio.sleep(LOOKS_EVERY_S)
            found = app.control.snapshot
        await app.workers.wait_for_complete()  # charts may still be drawn
        await pilot.pause()
        frame[:] = _lines(app, in_color=in_color)
        last = app.inbox.trained
        if found.state == "finished" and last is not None and last.total_steps:
            last = msgspec.structs.replace(last, total_steps=found.total_steps)
            while app.control.snapshot is not last:  # the engine may send one more
                app.inbox.on_snapshot(last)
                await asyncio.sleep(LOOKS_EVERY_S)
                await pilot.pause()
                frame[:] = _lines(app, in_color=in_color)
        app.exit()

    app.run(headless=True, size=size, auto_pilot=look)
    return "\n".join(frame), found


def _lines(app: Dashboard, *, in_color: bool) -> list[str]:
    strips = app.screen._compositor.render_strips()  # noqa: SLF001  # Textual's tests read it too
    if not in_color:
        return [strip.text.rstrip() for strip in strips]
    console = Console(force_terminal=True, color_system="truecolor", no_color=False)
    return [strip.render(console) for strip in strips]
