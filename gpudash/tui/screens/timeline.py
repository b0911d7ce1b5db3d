"""The screen of a profile: lanes over time, summary of the step time, and changes."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import ClassVar, Literal, TypeAlias

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from gpudash import format as fmt
from gpudash.trace.compare import compare
from gpudash.trace.summary import IdleCause, Summary
from gpudash.trace.text import comparison_lines, summary_lines
from gpudash.tui import bars
from gpudash.tui.cells import Cell, Parts, cell, fitted, fitting
from gpudash.tui.charts.trace_view import PAN, TraceView, view_of
from gpudash.tui.containment import Contained
from gpudash.tui.control import Control
from gpudash.tui.keys import TIMELINE_KEYS, Key
from gpudash.tui.profiles import ShownProfile
from gpudash.tui.screens.dialog import AskText
from gpudash.tui.screens.keys import Help, bindings
from gpudash.tui.widgets.bars import Bar
from gpudash.tui.widgets.painted import Scrolled
from gpudash.tui.widgets.timeline import Lanes, duration, facts

MOST = 30
"""Most lines of a table, which can be scrolled."""
IDLE: dict[IdleCause, tuple[str, str]] = {
    "host": ("nothing launched", "operator"),
    "stream": ("another stream", "copy"),
    "communication": ("communication", "collective"),
    "other": ("unknown", "runtime"),
}
"""Cause of idle time → words, and the hue (of a timeline's events)."""


def summary_rows(summary: Summary, width: int) -> Iterator[Parts]:
    """Yield the device time of a step as a bar, then all numbers."""
    if summary.on_device:
        yield from _bar(summary, width - 2)
        yield ()
    yield from _rows(summary_lines(summary, MOST), width)


def change_rows(before: Summary, after: Summary, width: int) -> Iterator[Parts]:
    """Yield the changes from one profile to the next."""
    yield from _rows(comparison_lines(compare(before, after), MOST), width)


def _rows(lines: Iterable[str], width: int) -> Iterator[Parts]:
    """Yield lines; the first one and those after a blank line are heads."""
    ink = "head"
    for line in lines:
        yield ((fitted(f" {line}", width), ink),)
        ink = "text" if line else "head"


def _bar(summary: Summary, width: int) -> Iterator[Parts]:
    """Yield the device time of a step as a bar, and its legend."""
    idle = [(*IDLE[cause], ms) for cause, ms in summary.idle_ms.items() if ms > 0]
    parts = [("busy", "kernel", summary.busy_ms or 0.0), *idle]
    whole_ms = sum(ms for *_, ms in parts) or 1.0
    until_ms, bar, legend = 0.0, [(" ", "text")], []
    for name, hue, ms in parts:
        begin, until_ms = round(until_ms / whole_ms * width), until_ms + ms
        columns = max(round(until_ms / whole_ms * width) - begin, 0)
        share = f" {fmt.percent(100 * ms / whole_ms)}"
        bar.append((f"{share if len(share) < columns else '':{columns}}", f"lit-{hue}"))
        legend.append(Cell(parts=(("  ", f"lit-{hue}"), (f" {name}", "dim"))))
    yield tuple(bar)
    kept = fitting(legend, width)
    yield ((" ", "text"), *(part for one in kept for part in (*one.parts, ("  ", "text"))))


Painter: TypeAlias = Callable[[int], Iterable[Parts]]
"""A function that returns all rows for a width."""
COPIED_COLUMNS = 120


class Tables(Scrolled):
    """Shows the rows of a painter."""

    def __init__(self) -> None:
        super().__init__(id="tables")
        self._painter: Painter = lambda _width: ()
        self._first = 0

    def show(self, painter: Painter) -> None:
        """Show a table from its first row on."""
        self._painter, self._first = painter, 0
        self.redraw()

    def scroll_rows(self, direction: int) -> None:
        """Scroll down by rows, or up if negative; not beyond the ends."""
        width, height = self.size
        beyond = sum(1 for _ in self._painter(width)) - height
        self._first = max(min(self._first + direction, beyond), 0)
        self.repaint()

    @property
    def text(self) -> str:
        """All rows as text to copy."""
        rows = self._painter(COPIED_COLUMNS)
        return "\n".join("".join(text for text, _ in row).rstrip() for row in rows)

    def rows(self, width: int, height: int) -> Iterator[Parts]:  # noqa: ARG002  # the base cuts them
        """Yield the rows from the topmost visible one on."""
        yield from list(self._painter(width))[self._first :]


Page: TypeAlias = Literal["lanes", "summary", "changes"]
ALL = 1_000_000
"""More rows than any table has."""
READING = """\
A lane is a CUDA stream, or a thread of the host by how deep its
calls are nested. Copies and collectives have lanes besides.
A full cell is filled by events; otherwise its height says how
much of it is. The name is that of the event that fills most.
Neighbouring events alternate in brightness. Red waits for the
device. The share at the right is of the time that is shown."""


class TimelineScreen(Contained, Screen[None]):
    """Shows a profile; the app's actions make requests to the run."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(TIMELINE_KEYS)

    def __init__(self, control: Control, shown: ShownProfile) -> None:
        super().__init__()
        self._control = control
        self.shown = shown
        self._page: Page = "lanes"
        self.keys: tuple[Key, ...] = TIMELINE_KEYS
        """The keys of footer, help and palette."""
        self._header, self._footer = Bar(id="header"), Bar(id="footer")
        self.lanes = Lanes(view_of(shown.timeline), self.show_bars)
        self.tables = Tables()

    def compose(self) -> ComposeResult:
        """Yield header, lanes, tables and footer; lanes or tables are hidden."""
        yield from (self._header, self.lanes, self.tables, self._footer)

    def on_mount(self) -> None:
        """Show the lanes."""
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
        if summary is None:
            return lambda _width: ((("the trace is being summed up …", "dim"),),)
        if page == "changes" and before is not None:
            return partial(change_rows, before, summary)
        return partial(summary_rows, summary)

    def take(self, shown: ShownProfile) -> None:
        """Update the profile with its summary, if it is the one that is shown."""
        if shown.timeline is not self.shown.timeline:
            return
        self.shown = shown
        if self._page != "lanes" and self.is_mounted:
            self._turn_to("summary" if shown.before is None else self._page)

    def show_bars(self) -> None:
        """Update header and footer."""
        with self._header.contained():
            self._header.show(self._title(), self._position())
        with self._footer.contained():
            refused = self._control.refused_now
            keys = bars.footer(self._control.snapshot, self.keys, roomy=False, refused=refused)
            self._footer.show(keys)

    def _title(self) -> tuple[Cell, ...]:
        trace = self.shown.timeline.trace
        status = fmt.plain(self._control.profile_status)
        steps = f"{len(trace.steps)} steps" if len(trace.steps) != 1 else "one step"
        return (
            cell({"lanes": "timeline"}.get(self._page, self._page), "strong"),
            *((cell(status, "busy", rank=1),) if status else ()),
            *((cell(fmt.plain(trace.device), rank=4),) if trace.device else ()),
            *((cell(steps, "dim", rank=5),) if trace.steps else ()),
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
        """Move the cursor by cells."""
        self._look(self.lanes.view.moved(cells, self.lanes.cell_us))

    def action_lane(self, rows: int) -> None:
        """Move the cursor by rows, or scroll a table."""
        if self._page == "lanes":
            self._look(self.lanes.view.in_lane(self.lanes.view.lane + rows))
        else:
            self.tables.scroll_rows(rows)

    def action_page(self, direction: int) -> None:
        """Move by a page of rows."""
        self.action_lane(direction * max(self.size.height - 3, 1))

    def action_event(self, direction: int) -> None:
        """Go to the next event of the lane (+1) or the previous one (-1)."""
        self._look(self.lanes.view.beside(direction))

    def action_next(self, direction: int) -> None:
        """Go to the next match of the search; without a search to the next event."""
        view = self.lanes.view
        self._look(view.beside(direction) if view.found is None else view.match(direction))

    def action_step(self, direction: int) -> None:
        """Show the next step (+1) or the previous one (-1)."""
        self._look(self.lanes.view.beside_step(direction))

    def action_pan(self, direction: int) -> None:
        """Pan to later (+1) or earlier (-1) times."""
        view = self.lanes.view
        self._look(view.panned(direction * PAN * view.span.length_us))

    def action_end(self, direction: int) -> None:
        """Go to the end (+1) or the begin (-1) of the trace or table."""
        view = self.lanes.view
        if self._page == "lanes":
            self._look(
                view.panned(direction * view.span.whole_us).at(view.span.whole_us * (direction > 0))
            )
        else:
            self.tables.scroll_rows(direction * ALL)

    def action_zoom(self, direction: int) -> None:
        """Show less time (-1), or more (+1)."""
        self._look(self.lanes.view.zoomed(direction))

    def action_whole(self) -> None:
        """Show the whole trace."""
        self._look(self.lanes.view.whole())

    def action_zoom_to_event(self) -> None:
        """Zoom to the event under the cursor."""
        self._look(self.lanes.view.on_event(self.lanes.cell_us))

    def action_find(self) -> None:
        """Ask for a text, and go to the first event whose name contains it."""

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
        """Show a page, or the lanes again."""
        if page == "changes" and self.shown.summary is not None and self.shown.before is None:
            self.app.notify("there is no profile before this one in this session", markup=False)
        else:
            self._turn_to("lanes" if page == self._page else page)

    def action_where(self) -> None:
        """Show and copy the path of the trace."""
        path = str(self.shown.path)
        self.app.copy_to_clipboard(path)
        self.app.notify(f"copied: {fmt.plain(path)}; Perfetto opens it too", markup=False)

    def action_copy(self) -> None:
        """Copy the event under the cursor, or the table."""
        if self._page == "lanes":
            found = self.lanes.view.details(self.lanes.cell_us)
            copied = "" if found is None else "\n".join([found.name, " · ".join(facts(found))])
        else:
            copied = self.tables.text
        if copied:
            self.app.copy_to_clipboard(copied)
            self.app.notify(f"copied: {fmt.plain(copied.partition(chr(10))[0])}", markup=False)

    def action_help(self) -> None:
        """List every key of the timeline."""
        self.app.push_screen(Help(self.keys, reading=READING))

    def action_leave(self) -> None:
        """Go back to the lanes, or else end a search, or else go back to the dashboard."""
        if self._page != "lanes":
            self._turn_to("lanes")
        elif self.lanes.view.found is not None:
            self._look(self.lanes.view.searching(""))
        else:
            self.dismiss()
