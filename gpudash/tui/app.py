"""The dashboard's app: takes keys, shows snapshots. It never imports torch and never blocks.

The engine (a session) is opened after the first paint: the screen appears before it is loaded.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import msgspec
from rich.markup import escape
from textual import events
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, Monochrome, NoColor
from textual.notifications import Notify
from textual.screen import Screen

from gpudash.diagnosis.headline import why_lines
from gpudash.present.origins import origin_lines
from gpudash.protocol.commands import Plan
from gpudash.protocol.inspections import MemoryOwners
from gpudash.protocol.session import Playback
from gpudash.snapshot import Snapshot, compares_starts
from gpudash.tui import preferences
from gpudash.tui.actions.levers import LeverActions
from gpudash.tui.actions.profiles import ProfileActions
from gpudash.tui.actions.run import RunActions
from gpudash.tui.control import Control
from gpudash.tui.inbox import Inbox
from gpudash.tui.keys import ACTIVE, KEYS, REPLAY_KEYS
from gpudash.tui.preferences import Appearance, Preferences, Tab
from gpudash.tui.screens.dialog import AskText, ShowLines, copy
from gpudash.tui.screens.keys import Help, InOrder, Palette, as_markup, entries
from gpudash.tui.screens.main import REMEMBERED, MainScreen, ReplayScreen
from gpudash.tui.widgets.painted import Ascii
from gpudash.views.live import owner_lines, owners_title

if TYPE_CHECKING:  # the first frame does not wait for them
    from gpudash.run.replay import Player
    from gpudash.run.session import Session

RATE_HZ = 4.0
USUAL = Appearance()


class Dashboard(LeverActions, RunActions, ProfileActions):
    """The dashboard of a run or of a replay."""

    TITLE = "gpudash"
    CSS_PATH = "style.tcss"
    COMMANDS = {InOrder}  # noqa: RUF012  # as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "leave_now", "quit", show=False, priority=True),
        Binding("ctrl+q", "leave", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        open_engine: Callable[[], "Session"],
        plan: Plan,
        *,
        rate_hz: float = RATE_HZ,
        player: "Player | None" = None,
        first: Snapshot | None = None,
        ascii_only: bool = False,
        look: Appearance = USUAL,
    ) -> None:
        """With a `player` it is a replay; `ascii_only` is for terminals without Unicode.

        `first` is shown until the engine sends a snapshot.
        """
        super().__init__()
        self._ascii = [Ascii()] if ascii_only else []
        if player is not None:
            first = Snapshot(can=(), playback=Playback(name="…"))
        self.control = Control(open_engine, plan, first)
        self._remembered = preferences.load()
        self._look = look
        theme = look.theme or self._remembered.theme
        if theme in self.available_themes:
            self.theme = theme
        keys = KEYS if player is None else REPLAY_KEYS
        if ascii_only:  # the ASCII of an arrow, such as v, would look like another key
            keys = tuple(msgspec.structs.replace(key, by_name=True) for key in keys)
        self._period_s = 1 / rate_hz
        self._painted_s = float("-inf")
        self._started_s: float | None = None
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self.main_screen = (
            ReplayScreen(self.control, player) if player else MainScreen(self.control)
        )
        """The screen below all dialogs."""
        self.main_screen.last_start_s = self._remembered.starts_s.get(self._start_of(plan))
        # a script's output comes first, as without gpudash
        prints = not self.control.snapshot.levers and player is None
        usual = "output" if prints else self._remembered.pane or "history"
        self.main_screen.chosen_tab = look.pane or usual
        self.main_screen.keys = keys
        ACTIVE.set(keys)
        self.inbox = Inbox(knock=lambda: self.call_later(self._take_mail))

    def get_default_screen(self) -> Screen[None]:
        return self.main_screen

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = [*super().get_line_filters(), *self._ascii]
        if not (self.no_color and self.native_ansi_color):
            return filters
        # Textual decides by the first theme; terminal palette colours in grey are black on black
        return [NoColor() if isinstance(one, Monochrome) else one for one in filters]

    def on_mount(self) -> None:
        self.main_screen.call_after_refresh(self._ask, lambda: self.control.begin(self.inbox))
        self._running_loop = asyncio.get_running_loop()

    async def on_event(self, event: events.Event) -> None:
        """Let a text field's key act before later letters; Textual acts when the app has it."""
        if isinstance(event, events.Key) and not event.is_forwarded and not event.is_printable:
            target = self.focused or self.screen
            bound = self.screen.active_bindings.get(event.key)
            if bound is not None and bound.node is target and bound.enabled:
                target.call_later(target.run_action, bound.binding.action)
                return
        await super().on_event(event)

    # ── showing ─────────────────────────────────────────────────────────────────────────

    def _take_mail(self) -> None:
        """Show the newest snapshot, at most at the screen's rate and as fast as the terminal."""
        wait_s = self._painted_s + self._period_s - time.monotonic()
        if wait_s <= 0 and self.is_behind:
            wait_s = self._period_s
        if wait_s > 0:
            # a Textual timer that starts late never fires, and the screen would freeze
            asyncio.get_running_loop().call_later(wait_s, self.call_later, self._take_mail)
        else:
            self._deliver()

    def _deliver(self) -> None:
        self._painted_s = time.monotonic()
        mail = self.inbox.take()
        known = "" if mail.rewound else self.control.snapshot.found
        known_owners = self.control.snapshot.memory_owners
        with self.contained():
            notice = self.control.take(mail.snapshot) if mail.snapshot is not None else None
            if notice:
                self.notify(notice, markup=False)
            if (waited := self.control.ab.take_due()) is not None:
                self._compare(waited.lever, waited.value)
            self._note_start(self.control.snapshot)
            self._take_profile()
        found = self.control.snapshot.found
        if found not in ("", known):
            mail.lines.append(f"found: {found}")
        self.main_screen.show(mail)
        owners = self.control.snapshot.memory_owners
        if owners is not None and owners != known_owners:
            self._show_owners(owners)
        if self._timeline is not None and self._timeline.is_current:
            self._timeline.show_bars()
        if self.control.ending and self.control.dead:
            self._quit()

    def _show_owners(self, owners: MemoryOwners) -> None:
        """Show a report that the user requested, unless a dialog is open; the log has it too."""
        if owners.answers and self.screen is self.main_screen:
            self._open(ShowLines(owners_title(owners), owner_lines(owners)))

    def remembered(self) -> Preferences:
        starts_s = dict(self._remembered.starts_s)
        if self._started_s is not None:
            starts_s[self._start_of(self.control.plan)] = self._started_s
        theme, pane = self.theme, self.main_screen.chosen_tab
        chosen = pane in REMEMBERED and pane != self._look.pane
        return Preferences(  # configured values are not saved as choices
            theme=self._remembered.theme if theme == self._look.theme else theme,
            pane=pane if chosen else self._remembered.pane,
            starts_s=starts_s,
        )

    @staticmethod
    def _start_of(plan: Plan) -> str:
        return f"{plan.workload} on {plan.device}"

    def _note_start(self, snapshot: Snapshot) -> None:
        """Keep how long the first start took; the begin of others is not known here."""
        is_first = self._started_s is None and not compares_starts(snapshot)
        if is_first and snapshot.total_steps and snapshot.playback is None:
            self._started_s = snapshot.elapsed_s

    @property
    def at_work(self) -> bool:
        return self.control.alive

    def tell(self, line: str) -> None:
        self.inbox.on_log([line])

    def on_notify(self, event: Notify) -> None:
        """Show one notice at a time: more would cover what they are about. Drop a repeated one."""
        if any(event.notification.message == shown.message for shown in self._notifications):
            event.prevent_default()
        else:
            self.clear_notifications()

    # ── actions of the keys; more are in `actions/` ─────────────────────────────────────

    def action_pane(self, tab: Tab) -> None:
        self.main_screen.choose_tab(tab)

    def action_why(self) -> None:
        def show() -> None:
            self.control.require("why")
            shown = self.main_screen.headline
            self._open(ShowLines(f"why: {shown.title}", why_lines(shown)))

        self._ask(show)

    def action_origins(self) -> None:
        lines = origin_lines(self.control.snapshot)
        self._open(ShowLines("where the numbers come from", lines))

    def action_copy(self) -> None:
        copy(self, self.main_screen.copied())

    def action_find(self) -> None:
        def answered(text: str | None) -> None:
            sought = (text or "").strip()
            if sought and not self.main_screen.find(sought):
                self.notify(f"nothing found for {sought!r}", markup=False)

        self._open(
            AskText("find", "", "a lever; with the focus on the pane, a setting or a line"),
            answered,
        )

    def action_help(self) -> None:
        self._open(Help(self.main_screen.keys, self.main_screen.view.keys_of))

    def give_up(self, sentence: str) -> None:
        self._quit()
        self.exit(return_code=1, message=escape(f"gpudash: {sentence}"))

    def leave_soon(self) -> None:
        """Quit soon; may be called on any thread and in a signal handler."""
        if self._running_loop is not None and not self._running_loop.is_closed():
            self._running_loop.call_soon_threadsafe(self._quit)

    def action_command_palette(self) -> None:
        """Do nothing where the palette has no room."""
        if not self.main_screen.too_small and not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Let a command run once the palette has closed."""
        of_app = [key for key in self.main_screen.keys if not key.action.startswith("screen.")]
        keys = getattr(screen, "keys", of_app)  # a dialog has no keys of its own
        for title, help_, action in entries(self.control, keys):
            command = partial(self.call_later, self.run_action, action)
            yield SystemCommand(as_markup(title), as_markup(help_), command)
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)
