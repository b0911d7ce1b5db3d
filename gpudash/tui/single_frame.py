"""`--once`: runs the dashboard headless, and returns its last frame as text."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from textual.pilot import Pilot

from gpudash.protocol.commands import Plan
from gpudash.snapshot import ENDED, Snapshot
from gpudash.tui.app import Dashboard

if TYPE_CHECKING:  # the first frame does not wait for it
    from gpudash.run.session import Session

LOOKS_EVERY_S = 0.1
TRAINED_S = 5.0
"""How long a training without a planned end is watched, in seconds."""


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
    """Return the dashboard's frame once it `is_time`, and the snapshot at that moment.

    The frame of a finished run is from the last moment of its training: later there are no rates.
    """
    app = Dashboard(open_engine, plan, ascii_only=ascii_only)
    frame: list[str] = []
    last = found = app.control.snapshot

    async def look(pilot: Pilot[object]) -> None:
        nonlocal last, found
        while not is_time(found):
            await asyncio.sleep(LOOKS_EVERY_S)
            found = app.control.snapshot
            last = found if found.state == "training" else last
        await app.workers.wait_for_complete()  # charts may still be drawn
        await pilot.pause()
        frame[:] = _lines(app, in_color=in_color)
        if found.state == "finished" and last.total_steps:
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
