"""The main screen, of a run or of a replay: its panels, the focus, and the screen's actions."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, get_args

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.layout import Layout
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from gpudash.errors import UsageError
from gpudash.present.axes import TimeView
from gpudash.present.wording import result_text, verdict_text
from gpudash.snapshot import compares_starts
from gpudash.tui.arrangement import (
    Board,
    ChosenPanel,
    PanelChoice,
    is_roomy,
    is_too_small,
    notices_margin,
    places,
    too_small,
)
from gpudash.tui.containment import Contained
from gpudash.tui.control import Control
from gpudash.tui.inbox import NO_MAIL, Mail
from gpudash.tui.keys import CHARTS, ENTERS, KEYS, REPLAY_KEYS, Key
from gpudash.tui.panels import Panels, View
from gpudash.tui.preferences import Tab
from gpudash.tui.screens.keys import bindings

if TYPE_CHECKING:  # the first frame does not wait for it
    from gpudash.run.replay import Player

PANELS: tuple[str, ...] = get_args(ChosenPanel)
"""The panels in the order of their digits, from 1."""
REMEMBERED: tuple[Tab, ...] = ("history", "ab", "log")
"""The tabs that every run has; the next run opens the one chosen last."""
MARKER_REACH_S = 1.0
"""Up to this far behind a marker, going back skips it."""


class MainScreen(Contained, Screen[None]):
    """The main screen. It shows snapshots; the app's actions make requests to the run."""

    AUTO_FOCUS = "#levers"
    focused = Reactive[Widget | None](None, repaint=False)
    """Two panels draw their rules when it moves; Textual's own would draw the whole screen."""
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)

    def __init__(self, control: Control) -> None:
        super().__init__()
        self._control = control
        self._board = Board()
        self.headline = control.headline
        """The newest answer with its proposals, or what is instead of it."""
        self.last_start_s: float | None = None
        """How long the last run's start took, in seconds."""
        self.keys: Sequence[Key] = KEYS
        """The keys of footer, help and palette."""
        self.chosen_tab: Tab = "history"
        """The pane's tab that the user has chosen last."""
        self._time, self._time_of = TimeView(), control.workload
        self._panels = Panels()
        self._strip, self._chart = self._panels.answer, self._panels.throughput
        self.levers, self.pane = self._panels.levers, self._panels.pane
        self._too_small = Static(id="too-small", markup=False)

    @property
    def layout(self) -> Layout:
        """Overrides Textual's, as a stylesheet cannot name a custom layout."""
        return self._board

    def compose(self) -> ComposeResult:
        parts = self._panels
        yield from (parts.header, self._strip, *parts.charts, self.levers)
        yield from (self.pane, parts.status, parts.footer, self._too_small)

    def on_mount(self) -> None:
        self.pane.open(self.chosen_tab)
        hides = "pane" not in places(*self.app.size, self._board.shown)
        if (self.chosen_tab == "output" and hides) or compares_starts(self._control.snapshot):
            self.pane.focus()  # a script may ask something; two trainings have no levers
        self.show()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        self._place_notices()
        self._show_footer()
        if self.too_small:
            self._too_small.update(too_small(width, height))
        elif self.focused is None:  # the focused panel was hidden
            shown = self._board.shown
            self.call_after_refresh(self.query_one(f"#{shown.zoomed or shown.chosen}").focus)

    @property
    def too_small(self) -> bool:
        return is_too_small(*self.size)

    @property
    def view(self) -> View:
        shown, tab = self._board.shown, self.pane.tab
        return View(panels=shown, focus=self._focused, tab=tab, time=self._time)

    @property
    def _focused(self) -> str:
        return self.focused.id or "" if self.focused is not None else ""

    # ── showing ─────────────────────────────────────────────────────────────────────────

    def show(self, mail: Mail = NO_MAIL) -> None:
        control, snapshot = self._control, self._control.snapshot
        with self._strip.contained():
            self.headline = control.headline
            self._strip.show(self.headline, snapshot, self.last_start_s)
        self._show_footer()
        if self._time_of != control.workload:  # the moments were another workload's
            self._time_of, self._time = control.workload, self._time.live()
        self._panels.show(control, mail, self._time)
        self._arrange(self._panels.wanted(self._board.shown))

    def _show_footer(self) -> None:
        self._panels.show_footer(self._control, self.keys, self.view, self.size)

    # ── focus and arrangement ───────────────────────────────────────────────────────────

    def _rearrange(self, **changes: object) -> None:
        self._arrange(msgspec.structs.replace(self._board.shown, **changes))

    def _arrange(self, shown: PanelChoice) -> None:
        before = places(*self.size, self._board.shown)
        self._board.shown = shown
        if places(*self.size, self._board.shown) != before:
            # by a child, as Textual caches a screen's arrangement until a child requests another
            self._panels.header.refresh(layout=True)
            self.refresh()  # all of it: who asks for a region meanwhile hides what has moved
            self._place_notices()

    def _place_notices(self) -> None:
        """Show notices above the pane, where they hide no result; with room, nor a lever."""
        margin = notices_margin(*self.size, self._board.shown)
        for rack in self.query("ToastRack"):
            rack.styles.margin = 0, 0, margin, 0
            rack.set_class(is_roomy(*self.size), "over-charts")

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        focused = event.widget.id
        if focused in PANELS:
            self._rearrange(chosen=focused)
        self._show_footer()

    def action_panel_number(self, number: int) -> None:
        self._focus_on(PANELS[number - 1])

    def _focus_on(self, name: str) -> None:
        if self._board.shown.zoomed:
            self._zoom(name)
        # not the widget's `focus`, which acts later: the next key would go to the old panel
        self.set_focus(self.query_one(f"#{name}"))

    def action_panel(self, direction: int) -> None:
        here = self._focused
        index = PANELS.index(here) + direction if here in PANELS else 0
        self._focus_on(PANELS[index % len(PANELS)])

    def action_view(self) -> None:
        tabs = [tab for tab in self.pane.tabs if tab != "profile"]
        if self.focused is not self.pane:
            self.open_tab(self.pane.tab)
        elif self.pane.tab in tabs[:-1]:
            self.choose_tab(tabs[tabs.index(self.pane.tab) + 1])
        else:
            self.pane.open(tabs[0])  # for the next round
            self._focus_on("levers")

    def choose_tab(self, tab: Tab) -> None:
        """Show this tab of the pane, and open it in the next run."""
        if tab in REMEMBERED:
            self.chosen_tab = tab
        self.open_tab(tab)

    def open_tab(self, tab: Tab) -> None:
        self.pane.open(tab)
        self._arrange(self._panels.wanted(self._board.shown))
        self._focus_on("pane")
        self._show_footer()

    def find(self, text: str) -> bool:
        """Go to the next match: a row or line if the pane has the focus, else a lever."""
        if self.focused is self.pane:
            return self.pane.find(text)
        found = self.levers.find(text)
        if found:
            self._focus_on("levers")
        return found

    def copied(self) -> str:
        control, snapshot = self._control, self._control.snapshot
        shown = snapshot.comparison
        row = self.pane.chosen_result if self.focused is self.pane else None
        if row is not None:
            return result_text(row, snapshot.device)
        if self.view.keys_of == "ab" and shown is not None:
            text = verdict_text(shown, control.workload, snapshot.device)
            with suppress(UsageError):  # the command is not known in a recording
                text += f"\n{control.ab.command(shown)}"
            return text
        lever = self.levers.chosen
        return f"{lever.name}={control.levers.value(lever)}" if lever is not None else ""

    def action_device(self) -> None:
        is_open = self._board.shown.zoomed == "activity"
        self._zoom("" if is_open else "activity")
        self._focus_on("levers" if is_open else "activity")

    def action_zoom(self) -> None:
        self._zoom("" if self._board.shown.zoomed else self._focused or "throughput")

    def _zoom(self, name: str) -> None:
        self._panels.activity.whole = name == "activity"
        self._rearrange(zoomed=name)
        self._panels.activity.redraw()

    def action_leave_level(self) -> None:
        """Leave a wait, zoom, cursor or frozen charts, in this order; else focus the levers."""
        time, ab = self._time, self._control.ab
        if ab.waits is not None:
            ab.waits = None
            self.show()
        elif self._board.shown.zoomed:
            self._zoom("")
        elif time.cursor_s is not None:
            self._look(msgspec.structs.replace(time, cursor_s=None))
        elif time.end_s is not None:
            self._look(time.live())
        else:
            self._focus_on("levers")

    # ── arrows and Enter ────────────────────────────────────────────────────────────────

    async def action_move(self, columns: int, rows: int) -> None:
        focused = self._focused
        if focused in CHARTS:
            if columns:
                column_s = self._chart.time_range.bin_s
                self._look(self._time.moved(columns, column_s, self._newest_s))
        elif focused == "pane":
            if columns:
                self.pane.next_tab(columns)
                self.choose_tab(self.pane.tab)
            else:
                self.pane.scroll_rows(rows)
        elif columns:
            await self.app.run_action(f"nudge({columns})")  # before the next key moves the cursor
        else:
            self.levers.move(rows)
            self._arrange(self._panels.wanted(self._board.shown))  # the fold may have opened

    def action_scroll(self, direction: int) -> None:
        self.pane.scroll_pages(direction)

    async def action_enter(self) -> None:
        if (entered := ENTERS.get(self.view.keys_of)) is not None:
            await self.app.run_action(entered[0])

    # ── the charts' common time ─────────────────────────────────────────────────────────

    @property
    def _newest_s(self) -> float:
        at_s = self._control.snapshot.series.at_s
        return at_s[-1] if at_s else 0.0

    def _look(self, time: TimeView) -> None:
        self._time = time
        self._panels.show_charts(self._control.snapshot, time)

    def action_range(self, direction: int) -> None:
        self._look(self._time.zoomed(direction, self._newest_s))

    def action_whole_run(self) -> None:
        self._look(self._time.whole())

    def action_freeze(self) -> None:
        self._look(self._time.frozen(self._newest_s))

    def action_live(self) -> None:
        self._look(self._time.live())

    def action_to_marker(self, direction: int) -> None:
        moments = [marker.at_s for marker in self._control.snapshot.markers]
        self._look(self._time.jumped(direction, moments, self._newest_s))

    def action_cursor_at(self, at_s: float) -> None:
        self._look(self._time.at(at_s, self._newest_s))

    def action_between(self, one_s: float, other_s: float) -> None:
        self._look(self._time.between(one_s, other_s))


class ReplayScreen(MainScreen):
    """The main screen, with a scrubber."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(REPLAY_KEYS)

    def __init__(self, control: Control, player: "Player") -> None:
        super().__init__(control)
        self._player = player
        self._board.shown = PanelChoice(scrubber=True)

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self._panels.scrubber

    def action_play(self) -> None:
        self._player.play_or_hold()

    def action_speed(self, direction: int) -> None:
        self._player.faster(direction)

    def action_seek(self, seconds: float) -> None:
        self._player.seek(self._player.position_s + seconds)

    def action_seek_to(self, position_s: float) -> None:
        self._player.seek(position_s)

    def action_seek_end(self) -> None:
        self._player.seek_end()

    def action_seek_marker(self, direction: int) -> None:
        """Go to the next marker (+1) or the previous one (-1), or else to the end or begin."""
        playback = self._control.snapshot.playback
        if playback is None:
            return
        # the marker that was just reached is not the previous one
        here_s = self._player.position_s + min(direction, 0) * MARKER_REACH_S
        places = (0.0, *(at_s for at_s, _ in playback.markers), playback.length_s)
        beyond = [at_s for at_s in places if (at_s - here_s) * direction > 0]
        if beyond:
            self._player.seek(min(beyond, key=lambda at_s: abs(at_s - here_s)))
