"""The dashboard: keys in, snapshots out. It never imports torch and never blocks.

The engine is injected; it is opened and started after the first paint, so that the screen is
there before anything is loaded.
"""

import asyncio
import importlib
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import ClassVar

from rich.markup import escape
from textual import work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from gpudash.errors import ExistsError, GpudashError
from gpudash.protocol import Plan
from gpudash.tui.containment import ContainedApp
from gpudash.tui.control import Control
from gpudash.tui.engine import Engine, Player
from gpudash.tui.inbox import Inbox
from gpudash.tui.keys import keys_of
from gpudash.tui.screens.dialog import Answer, AskChoice, AskText, Confirm, Dialog
from gpudash.tui.screens.help import Help
from gpudash.tui.screens.main import MainScreen, ReplayScreen
from gpudash.tui.signals import leave_on_signals
from workloads import CATALOGUE
from workloads.levers import AUTO, Choice, LeverError, Switch

RATE_HZ = 4.0


class Arrived(Message):
    """There is something in the inbox."""


class Dashboard(ContainedApp):
    """The screen of a run."""

    TITLE = "gpudash"
    CSS_PATH = "style.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave_now", "quit", show=False, priority=True),
        Binding("ctrl+q", "leave", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        plan: Plan,
        *,
        rate_hz: float = RATE_HZ,
        player: Player | None = None,
    ) -> None:
        """With a `player` it is a replay."""
        super().__init__()
        self.control = Control(open_engine, plan, player)
        self._period_s = 1 / rate_hz
        self._painted_s = float("-inf")
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self._main = (MainScreen if player is None else ReplayScreen)(self.control)
        self.inbox = Inbox(knock=lambda: self.post_message(Arrived()))

    def get_default_screen(self) -> Screen[None]:
        """Return the one screen that is always there."""
        return self._main

    def on_mount(self) -> None:
        """Paint first, load afterwards."""
        self._main.call_after_refresh(self._begin)
        self._running_loop = asyncio.get_running_loop()

    def _begin(self) -> None:
        self._ask(lambda: self.control.begin(self.inbox))
        self._load_plotext()

    @work
    async def _load_plotext(self) -> None:
        await asyncio.to_thread(importlib.import_module, "gpudash.tui.plot")
        self._main.allow_drawing()

    # ── showing ─────────────────────────────────────────────────────────────────────────

    def on_arrived(self) -> None:
        """Paint at most at the screen's rate, and always what is newest by then."""
        wait_s = self._painted_s + self._period_s - time.monotonic()
        if wait_s > 0:
            self.set_timer(wait_s, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        self._painted_s = time.monotonic()
        mail = self.inbox.take()
        with self.contained():
            notice = self.control.take(mail.snapshot) if mail.snapshot is not None else None
            if notice:
                self.notify(notice, markup=False)
        self._main.show(mail.lines, rewound=mail.rewound)

    @property
    def at_work(self) -> bool:
        """Whether a training runs, or is about to."""
        return self.control.alive

    def tell(self, line: str) -> None:
        """Show a line in the log."""
        self.inbox.on_log([line])

    def _refuse(self, error: Exception) -> None:
        self.notify(str(error), severity="error", markup=False)

    def _open(
        self, dialog: Dialog[Answer], answered: Callable[[Answer | None], None] | None = None
    ) -> None:
        """Open a dialog, unless its like is open: the key is held, or it was a double click."""
        if not isinstance(self.screen, type(dialog)):
            self.push_screen(dialog, answered)

    # ── levers ──────────────────────────────────────────────────────────────────────────

    def _ask(self, request: Callable[[], None]) -> bool:
        """Make a request of the run; show it, or why it cannot be. Return whether it was made."""
        try:
            request()
        except (LeverError, GpudashError) as error:
            self._refuse(error)
            return False
        finally:
            self._main.show()
        return True

    def _step(self, name: str, direction: int) -> None:
        self._ask(lambda: self.control.step(self.control.lever(name), direction))

    def action_pipelining(self) -> None:
        """Switch pipelining over."""
        self._step("pipelined", 1)

    def action_batch(self, direction: int) -> None:
        """Take the next power of two."""
        self._step("batch_size", direction)

    def action_lever(self, direction: int) -> None:
        """Move the cursor in the lever panel, bringing it into sight first."""
        if self._main.compact:
            self._main.view("levers")
        self._main.levers.move(direction)

    def action_nudge(self, direction: int) -> None:
        """Give the lever under the cursor its neighbouring value."""
        lever = self._main.levers.chosen
        if lever is not None:
            self._step(lever.name, direction)

    def action_edit(self) -> None:
        """Change the lever under the cursor: a switch at once, anything else in a dialog."""
        lever = self._main.levers.chosen
        if lever is None:
            return
        if not self._ask(lambda: self.control.require("levers")):
            return
        value = self.control.value(lever)

        def answered(text: str | None) -> None:
            if text is not None:
                self._ask(lambda: self.control.change(lever, text))

        hint = f"takes effect: {lever.effect}"
        if isinstance(lever, Switch):
            self._step(lever.name, 1)
        elif isinstance(lever, Choice):
            choices = dict.fromkeys(lever.choices, "")
            self._open(AskChoice(lever.name, choices, value, hint), answered)
        else:
            self._open(AskText(lever.name, value, f"{lever.valid}; {hint}"), answered)

    def action_compare(self) -> None:
        """Compare the lever under the cursor as it is with another value; or end that."""
        if self.control.comparing:
            self.notify(self.control.end_comparison())
            return
        lever = self._main.levers.chosen
        if lever is None or not self._ask(self.control.check_comparable):
            return
        value = self.control.value(lever)

        def answered(text: str | None) -> None:
            if text is not None and self._ask(lambda: self.control.compare(lever, text)):
                self._main.open_comparison()

        hint = f"{lever.name}={value} against this, in alternating blocks"
        if lever.effect == "rebuilt model":
            hint += "; each starts from new weights, the present ones are lost"
        if isinstance(lever, Switch):
            answered(lever.step(value, 1))
        elif isinstance(lever, Choice):
            others = {choice: "" for choice in lever.choices if choice not in (value, AUTO)}
            self._open(AskChoice(f"A/B {lever.name}", others, "", hint), answered)
        else:
            other = lever.step(value, 1)
            self._open(AskText(f"A/B {lever.name}", other, f"{lever.valid}; {hint}"), answered)

    # ── the run ─────────────────────────────────────────────────────────────────────────

    def action_workload(self) -> None:
        """Choose a workload; another one than the present starts at once."""
        if not self._ask(lambda: self.control.require("restart")):
            return
        current = self.control.workload

        def answered(name: str | None) -> None:
            if name is not None and name != current:
                self._ask(lambda: self.control.start_workload(name))

        choices = {entry.name: entry.summary for entry in CATALOGUE.values()}
        hint = "another workload starts from new weights"
        self._open(AskChoice("workload", choices, current, hint), answered)

    def action_pause(self) -> None:
        """Pause or go on."""
        notice = self.control.pause_or_resume()
        if notice:
            self.notify(notice, markup=False)

    def action_restart(self) -> None:
        """Start the same plan again, with the levers as they are shown."""
        self._ask(self.control.restart)

    def action_new_row(self) -> None:
        """Begin a new row of the results table."""
        self.control.engine.new_row()

    # ── replay ──────────────────────────────────────────────────────────────────────────

    def action_play(self) -> None:
        """Play the recording, or hold it."""
        if self.control.player is not None:
            self.control.player.play_or_hold()

    def action_speed(self, direction: int) -> None:
        """Play at twice the speed, or at half of it."""
        if self.control.player is not None:
            self.control.player.faster(direction)

    def action_seek(self, seconds: float) -> None:
        """Go so far forward, or back."""
        self.control.seek(seconds)

    def action_seek_marker(self, direction: int) -> None:
        """Go to the next marker, or to the one before."""
        self.control.seek_marker(direction)

    def action_seek_to(self, position_s: float) -> None:
        """Go to a place of the recording."""
        if self.control.player is not None:
            self.control.player.seek(position_s)

    def action_seek_end(self) -> None:
        """Go to the end and follow it."""
        if self.control.player is not None:
            self.control.player.seek_end()

    # ── recording ───────────────────────────────────────────────────────────────────────

    def action_record(self) -> None:
        """Complete the recording, or ask for the file of a new one."""
        recording = self.control.snapshot.recording
        if recording is not None:
            self.control.stop_recording(recording.path)
            self.notify(f"completing {recording.path}", markup=False)
            return
        if not self._ask(self.control.check_recordable):
            return

        def answered(name: str | None) -> None:
            if name is None:
                return
            if name:
                self._record(name)
            else:
                self.notify("a recording needs a file name", severity="error", markup=False)

        proposed = self.control.file_name(datetime.now())  # noqa: DTZ005  # the user's own clock
        self._open(AskText("record to", proposed, "a CSV file, and a JSON beside it"), answered)

    def _record(self, name: str, *, force: bool = False) -> None:
        try:
            self.control.record(name, force=force)
        except ExistsError as error:
            self._ask_to_overwrite(name, error.fact)
        except GpudashError as error:
            self._refuse(error)

    def _ask_to_overwrite(self, name: str, fact: str) -> None:
        def answered(agreed: bool | None) -> None:  # noqa: FBT001  # Textual's callback
            if agreed:
                self._record(name, force=True)

        self._open(Confirm(f"{fact}. Replace it?", "replace the file", "keep it"), answered)

    # ── everything else ─────────────────────────────────────────────────────────────────

    def action_device(self) -> None:
        """Show or hide the device panel."""
        self._main.toggle_device()

    def action_close_panel(self) -> None:
        """Hide the device panel and the A/B panel."""
        self._main.remove_class("-device", "-comparing")

    def action_view(self, name: str = "") -> None:
        """Show the next of the panes that share a place, or the one named."""
        self._main.view(name)

    def action_scroll(self, direction: int) -> None:
        """Scroll the pane that scrolls."""
        self._main.scroll_pane(direction)

    def action_help(self) -> None:
        """List every key."""
        self._open(Help(keys_of(self.control.snapshot)))

    def action_leave(self) -> None:
        """Quit; ask first if a recording would be cut short."""
        recording = self.control.snapshot.recording
        if recording is None or self.control.dead:
            self.action_leave_now()
            return

        def answered(agreed: bool | None) -> None:  # noqa: FBT001  # Textual's callback
            if agreed:
                self.action_leave_now()

        question = f"Recording to {recording.path}, {recording.rows:,} rows so far. Quit?"
        self._open(Confirm(question, "complete the file and quit", "go on"), answered)

    def action_leave_now(self) -> None:
        """Complete a recording and quit."""
        if self.control.snapshot.recording is not None:
            self.control.stop_recording(self.control.snapshot.recording.path)
        self.exit()

    def give_up(self, sentence: str) -> None:
        """Complete a recording and quit: there is no main screen to go on with."""
        self.action_leave_now()
        self.exit(return_code=1, message=escape(f"gpudash: {sentence}"))

    def leave_soon(self) -> None:
        """Leave; from any thread, and from a signal's handler."""
        if self._running_loop is not None and not self._running_loop.is_closed():
            self._running_loop.call_soon_threadsafe(self.action_leave_now)

    def action_command_palette(self) -> None:
        """Show the palette, where it has room: in none, Textual's fails at PageUp."""
        if not self._main.too_small:
            super().action_command_palette()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002  # all ours
        """Yield the palette: every key's action, and the themes."""
        for key in keys_of(self.control.snapshot):
            if key.palette:
                why_not = key.why_not(self.control.snapshot)
                yield SystemCommand(
                    key.help,
                    why_not or f"key {key.shown}",
                    lambda key=key: self._run_from_palette(key.action),
                )
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)

    def _run_from_palette(self, action: str) -> None:
        """Run it once the palette has gone."""
        self.call_later(self.run_action, action)


def run_dashboard(
    open_engine: Callable[[], Engine],
    plan: Plan,
    *,
    rate_hz: float = RATE_HZ,
    player: Player | None = None,
) -> int:
    """Run the dashboard until the user leaves; return the exit code. A `player` plays a recording.

    It paints at most `rate_hz` times a second.
    """
    app = Dashboard(open_engine, plan, rate_hz=rate_hz, player=player)
    leave_on_signals(app.leave_soon, close=lambda: open_engine().close())
    app.run()
    return app.return_code or 0
