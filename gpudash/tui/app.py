"""The dashboard: keys in, snapshots out. It never imports torch and never blocks.

The engine is injected; it is opened and started after the first paint, so that the screen is
there before anything is loaded.
"""

import asyncio
import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, get_args

import msgspec
from rich.markup import escape
from textual import work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter, Monochrome, NoColor
from textual.message import Message
from textual.notifications import Notify
from textual.screen import Screen

from gpudash import format as fmt
from gpudash.errors import ExistsError, GpudashError
from gpudash.offers import refusal
from gpudash.protocol import MemoryOwners, Plan, Profiled
from gpudash.snapshot import Snapshot
from gpudash.tui import preferences
from gpudash.tui.ascii import Ascii
from gpudash.tui.containment import ContainedApp
from gpudash.tui.control import Control, OtherNumbersError
from gpudash.tui.engine import Engine, Player
from gpudash.tui.inbox import Inbox
from gpudash.tui.keymap import keys_of, name_of
from gpudash.tui.keys import ACTIVE, GROUPS, PROFILED_STEPS, key_for
from gpudash.tui.look import Look
from gpudash.tui.preferences import Preferences, Tab
from gpudash.tui.screens.chooser import Chooser, Chosen
from gpudash.tui.screens.dialog import Answer, AskChoice, AskKey, AskText, Confirm, Dialog, Told
from gpudash.tui.screens.help import Help
from gpudash.tui.screens.main import REMEMBERED, MainScreen, ProfiledWith, ReplayScreen
from gpudash.tui.signals import leave_on_signals
from gpudash.tui.undo import Way
from gpudash.tui.values import unit_of
from gpudash.views.memory import owner_lines, owners_title
from gpudash.views.why import why_lines
from workloads import CATALOGUE
from workloads.levers import Lever, LeverError, Switch

if TYPE_CHECKING:  # they load numpy, which most runs of the dashboard never need
    from gpudash.tui.profiles import Shown
    from gpudash.tui.screens.timeline import TimelineScreen

RATE_HZ = 4.0
USUAL = Look()
PATIENCE_S = 1.0
"""For remembering the theme and the pane: a home that is gone keeps nobody waiting."""


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
        ascii_only: bool = False,
        look: Look = USUAL,
    ) -> None:
        """With a `player` it is a replay; `ascii_only` is for terminals without Unicode."""
        super().__init__()
        self._ascii = [Ascii()] if ascii_only else []
        self.control = Control(open_engine, plan, player)
        self._remembered = preferences.load()
        self._look = look
        theme = look.theme or self._remembered.theme
        if theme in self.available_themes:
            self.theme = theme
        keys = keys_of(look.keys, replay=player is not None)
        if look.keys:
            self.set_keymap({name_of(key): key.keys for key in keys})
        if ascii_only:  # an arrow's stand-in would read as another key: v
            keys = tuple(msgspec.structs.replace(key, by_name=True) for key in keys)
        self._period_s = 1 / rate_hz
        self._painted_s = float("-inf")
        self._started_s: float | None = None
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self._main = (MainScreen if player is None else ReplayScreen)(self.control)
        self._main.last_start_s = self._remembered.starts_s.get(self._start_of(plan))
        # of a script what it prints comes first, as without gpudash
        prints = plan.workload not in CATALOGUE and player is None
        usual = "output" if prints else self._remembered.pane or "results"
        self._main.chosen_tab = look.pane or usual
        self._main.keys = keys
        ACTIVE.set(keys)
        self._profile: Profiled | None = None  # the one that was read last
        self._shown: Shown | None = None  # … as it is shown
        self._timeline: TimelineScreen | None = None
        self.inbox = Inbox(knock=lambda: self.post_message(Arrived()))

    def get_default_screen(self) -> Screen[None]:
        """Return the one screen that is always there."""
        return self._main

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return what changes every line on its way to the terminal."""
        filters = [*super().get_line_filters(), *self._ascii]
        if not (self.no_color and self.native_ansi_color):
            return filters
        # Textual decides by the first theme; grey of a terminal's own colours is black on black
        return [NoColor() if isinstance(one, Monochrome) else one for one in filters]

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
            # a timer of Textual's that begins late never fires, and the screen would stand still
            asyncio.get_running_loop().call_later(wait_s, self.call_later, self._deliver)
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
            self._note_start(self.control.snapshot)
            profile = self.control.new_profile()
            if profile is not None:
                self._read_profile(profile)
                if profile.steps < PROFILED_STEPS:
                    has = f"{profile.steps} of {PROFILED_STEPS} steps"
                    self.notify(f"the profile ended early: it has {has}")
        found = self.control.snapshot.found
        if found not in ("", known):
            mail.lines.append(f"found: {found}")
        self._main.show(mail)
        owners = self.control.snapshot.memory_owners
        if owners is not None and owners != known_owners:
            self._tell_owners(owners)
        if self._timeline is not None and self._timeline.is_current:
            self._timeline.show_bars()
        if self.control.ending and self.control.dead:
            self._quit()

    def _tell_owners(self, told: MemoryOwners) -> None:
        """Show it to whoever has asked; with another dialog open, the log alone has it."""
        if told.answers and self.screen is self._main:
            self._open(Told(owners_title(told), owner_lines(told)))

    def remembered(self) -> Preferences:
        """Return what the next run is to know of this one."""
        starts_s = dict(self._remembered.starts_s)
        if self._started_s is not None:
            starts_s[self._start_of(self.control.plan)] = self._started_s
        theme, pane = self.theme, self._main.chosen_tab
        chosen = pane in REMEMBERED and pane != self._look.pane
        return Preferences(  # what is configured is not chosen here
            theme=self._remembered.theme if theme == self._look.theme else theme,
            pane=pane if chosen else self._remembered.pane,
            starts_s=starts_s,
        )

    @staticmethod
    def _start_of(plan: Plan) -> str:
        return f"{plan.workload} on {plan.device}"

    def _note_start(self, snapshot: Snapshot) -> None:
        """Keep how long the first start took; a restart's begin is not known here."""
        if self._started_s is None and snapshot.total_steps and snapshot.playback is None:
            self._started_s = snapshot.elapsed_s

    @property
    def at_work(self) -> bool:
        """Whether a training runs, or is about to."""
        return self.control.alive

    def tell(self, line: str) -> None:
        """Show a line in the log."""
        self.inbox.on_log([line])

    def on_notify(self, event: Notify) -> None:
        """Drop a notice that is in sight already: a key that is held would fill the screen."""
        if any(event.notification.message == shown.message for shown in self._notifications):
            event.prevent_default()

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
        except OtherNumbersError as asked:
            self._ask_first(str(asked), request)
            return False
        except (LeverError, GpudashError) as error:
            self._refuse(error)
            return False
        finally:
            self._main.show()
        return True

    def _ask_first(self, question: str, request: Callable[[], None]) -> None:
        """Make the request once the user agrees that it changes what is computed."""

        def answered(key: str | None) -> None:
            if key == "y":
                self.control.agree()
                self._ask(request)

        answers = {"y": "change it; this is asked once", "n": "leave it as it is"}
        self._open(AskKey(question, answers, "leaves it as it is"), answered)

    def _step(self, name: str, direction: int) -> None:
        self._ask(lambda: self.control.step(name, direction))

    def action_pipelining(self) -> None:
        """Switch pipelining over."""
        self._step("pipelined", 1)

    def action_batch(self, direction: int) -> None:
        """Take the next power of two."""
        self._step("batch_size", direction)

    def action_nudge(self, direction: int) -> None:
        """Give the lever under the cursor its neighbouring value."""
        lever = self._main.levers.chosen
        if lever is not None:
            self._step(lever.name, direction)

    def action_edit(self) -> None:
        """Choose a value of the lever under the cursor, to set it or to compare it."""
        lever = self._main.levers.chosen
        if lever is not None and self._ask(lambda: self.control.check_settable(lever.name)):
            self._open_chooser(lever)

    def _open_chooser(self, lever: Lever, *, compares: bool = False) -> None:
        def answered(chosen: Chosen | None) -> None:
            if chosen is None:
                return
            if chosen.verb == "set":
                self._ask(lambda: self.control.change(lever, chosen.value))
            else:
                self._compare(lever.name, chosen.value)

        now, values = self.control.value(lever), self.control.values(lever)
        unit = unit_of(lever, self.control.snapshot)
        self._open(Chooser(lever, now, values, unit, compares=compares), answered)

    def action_code(self) -> None:
        """Show the lines of PyTorch for the A/B's lever, or for the one under the cursor."""
        shown, lever = self.control.snapshot.comparison, self._main.levers.chosen
        if self._main.focus_id == "ab" and shown is not None:
            lever = self.control.lever(shown.lever)
        if lever is not None:
            self.action_code_of(lever.name, self.control.value(lever))

    def action_code_of(self, name: str, value: str) -> None:
        """Show the lines of PyTorch that do what a lever does with this value."""
        from gpudash.tui.screens.recipe import TakeHome  # noqa: PLC0415  # after the first frame

        lever = self.control.lever(name)
        self._ask(lambda: self._open(TakeHome(lever, lever.canonical(value))))

    def action_set(self, name: str, value: str) -> None:
        """Set a lever."""
        self._ask(lambda: self.control.change(self.control.lever(name), value))

    def action_undo(self) -> None:
        """Undo the last lever change."""
        self._ask(lambda: self.control.go("undo"))

    def action_redo(self) -> None:
        """Redo the lever change that was undone."""
        self._ask(lambda: self.control.go("redo"))

    # ── A/B ─────────────────────────────────────────────────────────────────────────────

    def _compare(self, name: str, value: str) -> None:
        def compare() -> None:
            self.control.try_it(name, value)
            self._main.open_tab("ab")

        self._ask(compare)

    def action_try_it(self) -> None:
        """Compare what the answer proposes first."""
        proposed = self._main.answer.tries if self._main.answer else ()
        if not self._ask(lambda: self.control.require("blocks")):
            return
        if self.control.comparing:
            self.notify(f"an A/B is running; {key_for('compare')} ends it")
        elif proposed:
            self._compare(proposed[0].lever, proposed[0].value)
        elif self._ask(self.control.check_trains):
            compares = f"{key_for('compare')} compares the one under the cursor"
            self.notify(f"the answer proposes no lever now; {compares}")

    def action_keep(self) -> None:
        """Keep the A/B's second value."""
        self._tell_of(self.control.keep)

    def action_go_back(self) -> None:
        """Go back to the A/B's first value."""
        self._tell_of(self.control.back)

    def action_more_pairs(self) -> None:
        """Run the last A/B anew, with more pairs."""
        self._tell_of(self.control.more_pairs)

    def _tell_of(self, request: Callable[[], str]) -> None:
        """Make a request that answers with a notice; show it, or why it cannot be."""
        self._ask(lambda: self.notify(request(), markup=False))

    def action_use_row(self) -> None:
        """Set the levers as in the results row under the cursor."""
        row = self._main.pane.chosen_result
        if row is not None:
            self._ask(lambda: self.control.use_row(row))

    def action_pane(self, tab: Tab) -> None:
        """Open a tab of the pane."""
        self._main.choose_tab(tab)

    def action_why(self) -> None:
        """Show each rule of the answer with its measured value."""
        if self._main.answer is not None:
            snapshot, cores = self.control.snapshot, self.control.cores
            lines = why_lines(self._main.answer, snapshot, cores, self._main.profile)
            self._open(Told(f"why: {self._main.answer.title}", lines))

    def action_memory(self) -> None:
        """Ask who owns device memory; the answer opens a dialog."""
        self._ask(self.control.ask_memory_owners)

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def action_copy(self) -> None:
        """Copy the verdict, the row or the lever, whatever the focus is on."""
        self._copy(self._main.copied())

    def action_copy_command(self) -> None:
        """Copy the last A/B as a command line."""
        shown = self.control.snapshot.comparison
        if shown is None:
            self.notify("no A/B has been run here")
        else:
            self._ask(lambda: self._copy(self.control.verdict_command(shown)))

    def _copy(self, text: str) -> None:
        if text:
            self.copy_to_clipboard(text)
            self.notify(f"copied: {text}", markup=False)

    def action_find(self) -> None:
        """Ask for a text and find it in the levers, the results or the log."""

        def answered(text: str | None) -> None:
            sought = (text or "").strip()
            if sought and not self._main.find(sought):
                self.notify(f"nothing found for {sought!r}", markup=False)

        self._open(
            AskText("find", "", "a lever; with the focus on the pane, a row or a line"), answered
        )

    def action_compare(self) -> None:
        """Compare the lever under the cursor as it is with another value; or end that."""
        if self.control.comparing:
            self._tell_of(self.control.end_comparison)
            return
        lever = self._main.levers.chosen
        if lever is None or not self._ask(lambda: self.control.check_comparable(lever)):
            return
        if isinstance(lever, Switch):
            self._compare(lever.name, lever.step(self.control.value(lever), 1))
        else:
            self._open_chooser(lever, compares=True)

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

    def action_type_line(self) -> None:
        """Type a line for a script that waits for one."""
        if not self._ask(lambda: self.control.require("type")):
            return

        def answered(line: str | None) -> None:
            if line:  # an Enter that is held must not answer the script
                self.control.engine.type(f"{'' if line.isspace() else line}\n")

        script = fmt.plain(self.control.workload)
        hint = "a line for its input(); a space alone is an empty line"
        self._open(AskText(f"to {script}", "", hint), answered)

    def action_new_row(self) -> None:
        """Begin a new row of the results table."""
        self.control.engine.new_row()

    # ── profiles ────────────────────────────────────────────────────────────────────────

    def action_timeline(self) -> None:
        """Show the newest profile of this run, or have the first one made."""
        profile = self.control.snapshot.profile
        if profile is None:
            self.action_profile()
        elif profile != self._profile or self._shown is None:
            self._read_profile(profile)
        else:
            self._show_profile(self._shown)

    def action_profile(self) -> None:
        """Trace the next steps; their timeline is shown when it is there."""
        if self._ask(self.control.check_profilable):
            self._ask_for_profile()

    @work
    async def _ask_for_profile(self) -> None:
        from gpudash.tui.traces import new_path  # noqa: PLC0415  # after the first frame

        recording = self.control.snapshot.recording
        now = datetime.now()  # noqa: DTZ005  # the user's own clock
        beside = recording.path if recording else None
        try:  # a home that is gone would block for long
            path = await asyncio.to_thread(new_path, self.control.file_stem, beside, now)
        except OSError as error:
            self._refuse(error)
        else:
            self._ask(lambda: self.control.profile(path))

    @work(exclusive=True, group="profile")
    async def _read_profile(self, profile: Profiled) -> None:
        """Read a trace in a thread and show it; sum it up in another, which takes as long again."""
        before = self._shown
        of = self.control.snapshot.profile_of  # by now the settings may be others
        self._say_of_profile("reading the profile …")
        try:
            shown = await asyncio.to_thread(_loaded, Path(profile.path))
        except (GpudashError, OSError) as error:
            self._say_of_profile(str(error))
            return
        self._profile, self._shown = profile, shown
        self._say_of_profile("")
        self._show_profile(shown)
        self._shown = await asyncio.to_thread(_summed_up, shown, before)
        if self._shown.summary is not None:
            self._main.profiled = ProfiledWith(*of, self._shown.summary)
            self._main.show()
        if self._timeline is not None:
            self._timeline.take(self._shown)

    def _say_of_profile(self, line: str) -> None:
        self.control.profile_told = line
        self._main.show()

    def _show_profile(self, shown: "Shown") -> None:
        """Open its timeline; not above a dialog in which the user may be typing."""
        from gpudash.tui.screens.timeline import TimelineScreen  # noqa: PLC0415  # it loads numpy

        timeline = TimelineScreen(self.control, shown)
        if self.screen is self._main:
            self.push_screen(timeline)
        elif self.screen is self._timeline:
            self.switch_screen(timeline)
        else:
            self.notify(f"the profile is there; {key_for('timeline')} shows it")
            return
        self._timeline = timeline

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
            if name.strip():
                self._record(name.strip())
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

    def action_help(self) -> None:
        """List every key."""
        self._open(Help(self._main.keys, self._main.focus_id))

    def action_leave(self) -> None:
        """Quit; ask first if a recording would be cut short, or a script of the user's runs."""
        recording = self.control.snapshot.recording
        if self.control.leavable and not self.control.ending:
            self._ask_what_becomes_of_it()
            return
        if recording is None or self.control.dead or self.control.leavable:
            self._quit()
            return

        def answered(agreed: bool | None) -> None:  # noqa: FBT001  # Textual's callback
            if agreed:
                self._quit()

        question = f"Recording to {recording.path}, {recording.rows:,} rows so far. Quit?"
        self._open(Confirm(question, "complete the file and quit", "go on"), answered)

    def _ask_what_becomes_of_it(self) -> None:
        """Ask whether a script is to end with the dashboard, or to go on alone."""

        def answered(key: str | None) -> None:
            if key == "s":
                self.control.end()
                self._main.show()
            elif key == "l":
                self._quit()

        recording = self.control.snapshot.recording
        how = "by SIGTERM this time" if self.control.interrupted else "as Ctrl-C does"
        completed = f" The recording {recording.path} is completed." if recording else ""
        question = f"{self.control.workload} is running. Stop it, or leave it running?{completed}"
        answers = {
            "s": f"stop it, {how}, and quit",
            "l": "leave it running and quit; gpudash attach shows it again",
        }
        self._open(AskKey(question, answers, "stays"), answered)

    def action_leave_now(self) -> None:
        """Quit; a script of the user's is sent the Ctrl-C first, and then it is asked."""
        if not self.control.leavable:
            self._quit()
        elif self.control.interrupted:
            self.action_leave()
        else:
            self.control.interrupt()
            script, again = fmt.plain(self.control.workload), key_for("leave_now")
            self.notify(f"{script} was sent Ctrl-C; {again} again asks to quit", markup=False)

    def _quit(self) -> None:
        """Complete a recording and quit; a script that runs goes on."""
        if self.control.leavable:
            self.control.engine.leave()
        if self.control.snapshot.recording is not None:
            self.control.stop_recording(self.control.snapshot.recording.path)
        self.exit()

    def give_up(self, sentence: str) -> None:
        """Complete a recording and quit: there is no main screen to go on with."""
        self._quit()
        self.exit(return_code=1, message=escape(f"gpudash: {sentence}"))

    def leave_soon(self) -> None:
        """Leave; from any thread, and from a signal's handler."""
        if self._running_loop is not None and not self._running_loop.is_closed():
            self._running_loop.call_soon_threadsafe(self._quit)

    def action_command_palette(self) -> None:
        """Show the palette, where it has room: in none, Textual's fails at PageUp."""
        if not self._main.too_small:
            super().action_command_palette()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the palette in groups: every lever value, every key's action, the themes."""
        for lever in self.control.levers:
            if refusal(lever.name, self.control.snapshot.levers):
                continue
            now = self.control.value(lever)
            for one in self.control.values(lever):
                if one.value != now:
                    title = f"Levers · {lever.name}={one.value}"
                    action = f"set({lever.name!r}, {one.value!r})"
                    yield self._command(title, lever.summary, action)
        would = {way: self.control.label(way) for way in get_args(Way)}
        keys = getattr(screen, "keys", self._main.keys)  # a timeline has keys of its own
        for key in keys:
            if key.palette:
                what = f": {would[key.action]}" if would.get(key.action) else ""
                why_not = key.why_not(self.control.snapshot)
                title = f"{GROUPS[key.group]} · {key.help}"
                yield self._command(title, why_not or f"key {key.shown}{what}", key.action)
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)

    def _command(self, title: str, help_: str, action: str) -> SystemCommand:
        """Return an entry of the palette that runs the action once the palette has gone."""
        return SystemCommand(
            _as_markup(title),
            _as_markup(help_),
            lambda: self.call_later(self.run_action, action),
        )


def _as_markup(text: str) -> str:
    """Return what the palette shows as this text; Textual's `escape` leaves some brackets."""
    return fmt.plain(text).replace("[", r"\[")


def _loaded(path: Path) -> "Shown":
    """Return what is shown of a trace: for a thread, which imports what that needs too."""
    from gpudash.tui.profiles import load  # noqa: PLC0415  # it loads numpy

    importlib.import_module("gpudash.tui.screens.timeline")
    return load(path)


def _summed_up(shown: "Shown", before: "Shown | None") -> "Shown":
    from gpudash.tui.profiles import sum_up  # noqa: PLC0415  # as above

    return sum_up(shown, before)


def run_dashboard(
    open_engine: Callable[[], Engine],
    plan: Plan,
    *,
    rate_hz: float = RATE_HZ,
    player: Player | None = None,
    ascii_only: bool = False,
    look: Look = USUAL,
) -> int:
    """Run the dashboard until the user leaves; return the exit code. A `player` plays a recording.

    It paints at most `rate_hz` times a second.
    """
    app = Dashboard(
        open_engine, plan, rate_hz=rate_hz, player=player, ascii_only=ascii_only, look=look
    )
    leave_on_signals(app.leave_soon, close=lambda: open_engine().close())
    app.run()
    preferences.save(app.remembered()).join(PATIENCE_S)
    return app.return_code or 0
