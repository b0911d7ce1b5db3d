"""The screen of a profile: lanes over time with a summary below them, or tables in their place."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Literal, TypeAlias

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from gpudash import format as fmt
from gpudash.diagnosis.headline import Headline
from gpudash.present.cells import Cell, Parts, cell, fitted
from gpudash.present.trace_view import PAN, TraceView, view_of
from gpudash.trace.summary import compare
from gpudash.trace.text import Figure, Section, blocks, comparison_lines
from gpudash.tui import bars
from gpudash.tui.containment import Contained
from gpudash.tui.control import Control
from gpudash.tui.keys import TIMELINE_KEYS, Key, key_for
from gpudash.tui.profiles import ShownProfile
from gpudash.tui.screens.dialog import AskText, copy
from gpudash.tui.screens.keys import Help, bindings
from gpudash.tui.widgets.bars import Bar
from gpudash.tui.widgets.summary import ALL, MOST, Painter, Tables, summary_rows
from gpudash.tui.widgets.time_axis import duration
from gpudash.tui.widgets.timeline import Lanes, facts

Page: TypeAlias = Literal["lanes", "summary", "changes"]
READING = """\
The first lane has the phases in the dashboard's colours; dots
wait for data. A lane below it is a CUDA stream, or a thread of
the host by how deep its calls are nested. Copies and
collectives have lanes besides.
A full cell is filled by events; otherwise its height says how
much of it is. The name is that of the event that fills most.
Neighbouring events alternate in brightness. Red waits for the
device. The share at the right is of the time that is shown."""


def _following(now: Headline) -> Iterator[str]:
    if now.caution:
        yield f"{key_for('try_it')}  {now.caution}"
    elif (first := now.first) is not None:
        gain = first.gain.label if first.gain is not None else ""
        yield from (f"{key_for('try_it')}  try {first.move}", f"   {gain}")
    if now.answer is not None:
        yield from (now.answer.title, *now.answer.evidence[:1])


class TimelineScreen(Contained, Screen[None]):
    """Shows a profile; the app's actions make requests to the run."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(TIMELINE_KEYS)

    def __init__(self, control: Control, shown: ShownProfile) -> None:
        super().__init__()
        self._control = control
        self.shown = shown
        self._page: Page = "lanes"
        self._follows: tuple[Figure, ...] = ()  # what the dashboard makes of the training now
        self.keys: tuple[Key, ...] = TIMELINE_KEYS
        """The keys of footer, help and palette."""
        self._header, self._footer = Bar(id="header"), Bar(id="footer")
        self.lanes = Lanes(view_of(shown.timeline), self.show_bars, self._below)
        self.tables = Tables()

    def compose(self) -> ComposeResult:
        yield from (self._header, self.lanes, self.tables, self._footer)

    def on_mount(self) -> None:
        self._turn_to("lanes")

    # ── showing ─────────────────────────────────────────────────────────────────────────

    def _turn_to(self, page: Page) -> None:
        self._page = page
        self.lanes.display, self.tables.display = page == "lanes", page != "lanes"
        if page != "lanes":
            self.tables.show(self._table(page))
        self.show_bars()

    def _table(self, page: Page) -> Painter:
        summary, before = self.shown.summary, self.shown.before
        if page == "changes" and before is not None and summary is not None:
            lines = comparison_lines(compare(before, summary), MOST)
            return lambda width: (((fitted(f" {line}", width), "text"),) for line in lines)
        return lambda width: self._below(width, ALL)

    def _below(self, width: int, height: int) -> Iterable[Parts]:
        summary = self.shown.summary
        if summary is None:
            return ((("   the trace is being summed up …", "dim"),),)
        first, second, *others = blocks(summary)
        follows = [Section("what follows: the dashboard's answer", self._follows)]
        shown = [first, second, *(follows if self._follows else ()), *others]
        return summary_rows(shown, width, height)

    def take(self, shown: ShownProfile) -> None:
        """Do nothing for a profile other than the one shown."""
        if shown.timeline is not self.shown.timeline:
            return
        self.shown = shown
        if self.is_mounted:
            self._turn_to("summary" if self._page == "changes" and not shown.before else self._page)
            self.lanes.repaint()

    def show_bars(self) -> None:
        with self._header.contained():
            self._header.show(self._title(), self._position())
        with self._footer.contained():
            snapshot, requests = self._control.snapshot, self._control.requests
            self._footer.show(bars.footer(snapshot, self.keys, requests, roomy=False))
            lines = _following(self._control.headline)
            follows = tuple(Figure(what=fmt.plain(line)) for line in lines)
            if follows != self._follows:
                self._follows = follows
                self.lanes.repaint()
                self.tables.repaint()

    def _title(self) -> tuple[Cell, ...]:
        trace = self.shown.timeline.trace
        status = fmt.plain(self._control.profile_status)
        count, what = len(trace.steps), fmt.plain(self._control.snapshot.profile_of[0])
        steps = f"{fmt.steps(count)} from step {trace.steps[0].number:,}" if count else ""
        return (
            *((cell(fmt.clip(what, 32), "strong", rank=3),) if what else ()),
            cell("profile" if self._page == "lanes" else f"profile: {self._page}", "strong"),
            *((cell(status, "busy", rank=1),) if status else ()),
            *((cell(steps, "text", rank=5),) if steps else ()),
            *((cell(fmt.plain(trace.device), rank=4),) if trace.device else ()),
            *((cell(f"{trace.dropped:,} dropped", "dim", rank=6),) if trace.dropped else ()),
        )

    def _position(self) -> tuple[Cell, ...]:
        view = self.lanes.view
        if self._page != "lanes":
            return ()
        steps = view.timeline.trace.steps
        found: tuple[Cell, ...] = ()
        if view.found is not None:
            number = f"{view.match_number or fmt.ABSENT} of {len(view.found):,}"
            found = (cell(f"/{fmt.clip(fmt.plain(view.sought), 16)}: {number}", "busy", rank=1),)
        step = () if view.step is None else (cell(f"step {view.step + 1} of {len(steps)}", rank=3),)
        return (*found, *step, cell(f"{duration(view.span.length_us)} shown", "dim", rank=2))

    # ── actions of the keys ─────────────────────────────────────────────────────────────

    def _look(self, view: TraceView) -> None:
        if self._page == "lanes":
            self.lanes.show(view)

    def action_cursor(self, cells: int) -> None:
        self._look(self.lanes.view.moved(cells, self.lanes.cell_us))

    def action_lane(self, rows: int) -> None:
        if self._page == "lanes":
            self._look(self.lanes.view.in_lane(self.lanes.view.lane + rows))
        else:
            self.tables.scroll_rows(rows)

    def action_page(self, direction: int) -> None:
        self.action_lane(direction * max(self.size.height - 3, 1))

    def action_event(self, direction: int) -> None:
        self._look(self.lanes.view.beside(direction))

    def action_next(self, direction: int) -> None:
        """Go to the next match of the search; without a search to the next event."""
        view = self.lanes.view
        self._look(view.beside(direction) if view.found is None else view.match(direction))

    def action_step(self, direction: int) -> None:
        self._look(self.lanes.view.beside_step(direction))

    def action_pan(self, direction: int) -> None:
        view = self.lanes.view
        self._look(view.panned(direction * PAN * view.span.length_us))

    def action_end(self, direction: int) -> None:
        view = self.lanes.view
        if self._page == "lanes":
            self._look(
                view.panned(direction * view.span.whole_us).at(view.span.whole_us * (direction > 0))
            )
        else:
            self.tables.scroll_rows(direction * ALL)

    def action_zoom(self, direction: int) -> None:
        self._look(self.lanes.view.zoomed(direction))

    def action_whole(self) -> None:
        self._look(self.lanes.view.whole())

    def action_zoom_to_event(self) -> None:
        self._look(self.lanes.view.on_event(self.lanes.cell_us))

    def action_find(self) -> None:
        def answered(text: str | None) -> None:
            if text is None:
                return
            self._turn_to("lanes")
            view = self.lanes.view.searching(text.strip())
            self._look(view)
            if view.found is not None and not len(view.found):
                self.app.notify(f"nothing found for {text.strip()!r}", markup=False)

        hint = "part of a kernel's name, or of an operator's"
        self.app.push_screen(AskText("find", self.lanes.view.sought, hint), answered)

    def action_show(self, page: Page) -> None:
        if page == "changes" and self.shown.summary is not None and self.shown.before is None:
            self.app.notify("there is no profile before this one in this session", markup=False)
        else:
            self._turn_to("lanes" if page == self._page else page)

    def action_try_it(self) -> None:
        """Go back to the dashboard, and run an A/B of what it proposes."""
        self.dismiss()
        self.app.call_later(self.app.run_action, "try_it")

    def action_where(self) -> None:
        copy(self.app, str(self.shown.path), "copied; Perfetto opens it too")

    def action_copy(self) -> None:
        if self._page == "lanes":
            found = self.lanes.view.details(self.lanes.cell_us)
            copied = "" if found is None else "\n".join([found.name, " · ".join(facts(found))])
        else:
            copied = self.tables.text
        copy(self.app, copied)

    def action_help(self) -> None:
        self.app.push_screen(Help(self.keys, reading=READING))

    def action_leave(self) -> None:
        """Go back to the lanes, or else end a search, or else go back to the dashboard."""
        if self._page != "lanes":
            self._turn_to("lanes")
        elif self.lanes.view.found is not None:
            self._look(self.lanes.view.searching(""))
        else:
            self.dismiss()
