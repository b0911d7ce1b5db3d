"""The lanes of a profile: a `TraceView` as rows of cells, and the widget that shows it.

Full cells have a background, on which the event's name is printed. In other cells the height is
the filled share. Neighbouring events alternate in brightness, and a wait for data is dotted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

import msgspec
from msgspec.structs import replace
from rich.cells import cell_len
from textual import events

from gpudash import format as fmt
from gpudash.diagnosis.lanes import SHORT
from gpudash.format import as_ascii
from gpudash.metrics import METRICS
from gpudash.present.cells import CellRow, Parts, first_in_sight, fitted, level_of, rule, whole
from gpudash.present.trace_view import Span, TraceView, span_of
from gpudash.trace.model import KINDS
from gpudash.trace.names import short
from gpudash.trace.phases import LOADER
from gpudash.trace.summary import Phase
from gpudash.trace.text import PHASE
from gpudash.tui.widgets.painted import Painted
from gpudash.tui.widgets.time_axis import borders, duration, ruler
from gpudash.views.timeline import Cells, Details, Row, cells_of

FULL, HALF = 0.9, 0.5
"""Shares of a cell from which it is drawn as full, and as a wait for data."""
LEAST_LABEL = 3
"""Fewest cells for an event's name."""
GUTTER = 16
"""Most columns of the lanes' names."""
SHARES_FROM = 60
"""Columns from which each lane ends with its busy share."""
SHARE = 6
NAMED_BY_KIND = ("phase", "waits", "overlap")
"""Kinds of rows that are named by their kind instead of their lane."""
WAIT, WAITS = "·", ("line-0", "line-0")
"""Fills a wait for data, and its inks."""
ALL_STEPS_FROM = 28
"""Rows from which all steps have a lane above those of the part that is shown."""
SUMMARY_FROM = 18
"""Rows from which half of the room is the summary's."""


class _Places(msgspec.Struct, frozen=True):
    """The layout of a profile in a widget of some size, from top to bottom."""

    gutter: int
    columns: int
    """Columns of the time axis."""
    all_steps: int
    """Rows of all steps, …"""
    steps: int
    """… of the borders of the shown ones, above one row of the time axis, …"""
    lanes: int
    """… of the lanes, …"""
    details: int
    """… of the event under the cursor, …"""
    summary: int
    """… and of the summary."""
    has_shares: bool

    @property
    def above(self) -> int:
        return self.all_steps + self.steps + 1


def places(view: TraceView, width: int, height: int) -> _Places:
    rows, steps = view.timeline.rows, view.timeline.trace.steps
    longest = max((cell_len(_label(row)) for row in rows), default=0) + 3
    gutter = min(longest, GUTTER, width // 3)
    has_shares = width >= SHARES_FROM
    columns = max(width - gutter - SHARE * has_shares, 1)
    all_steps = 3 if rows and len(steps) > 1 and height >= ALL_STEPS_FROM else 0
    borders = int(bool(steps) and height >= 6)
    room = height - all_steps - borders - 1
    least = 4 if height >= 14 else 2 if height >= 8 else 1 if height >= 4 else 0
    most = (room - least) // 2 if height >= SUMMARY_FROM else room - least
    lanes = max(min(len(rows), most), 1)
    details = max(min(room - lanes, least), 0)
    summary = max(room - lanes - details, 0)
    return _Places(gutter, columns, all_steps, borders, lanes, details, summary, has_shares)


def _rows_in_sight(rows: Sequence[Row], cursor: int, height: int) -> list[int]:
    """Return the visible rows: of each host thread as many call depths as fit."""
    if len(rows) <= height:
        return list(range(len(rows)))
    threads = Counter(row.lane for row in rows if row.kind == "host")
    room = height - len(rows) + threads.total()
    fitting = (
        depths
        for depths in range(max(threads.values(), default=1), 0, -1)
        if sum(min(has, depths) for has in threads.values()) <= room
    )
    depths = next(fitting, 1)
    own = rows[cursor]
    shown = []
    for number, row in enumerate(rows):
        is_own = row.kind == own.kind == "host" and row.lane == own.lane
        first = max(own.depth - depths + 1, 0) if is_own else 0
        if row.kind != "host" or first <= row.depth < first + depths:
            shown.append(number)
    first = first_in_sight(0, shown.index(cursor), len(shown), height)
    return shown[first : first + height]


def timeline_rows(view: TraceView, width: int, height: int) -> Iterator[Parts]:
    where = places(view, width, height)
    span, cell_us = view.span, view.span.length_us / where.columns
    if where.all_steps:
        yield from _all_steps(view, where, width)
    if where.steps:
        steps = borders(view.timeline.trace.steps, span, where.columns)
        yield *rule("step", where.gutter), *steps, ("─" * SHARE * where.has_shares, "border")
    yield ((" " * where.gutter, "dim"), *ruler(span, where.columns, view.at_us))
    event = view.event(cell_us)
    shown = _rows_in_sight(view.timeline.rows, view.lane, where.lanes)
    for number in shown:
        row, here = view.timeline.rows[number], number == view.lane
        cells = cells_of(row, span.begin_us, span.end_us, where.columns)
        line = lane(view, row, cells, event if here else None)
        ink = "strong" if here else "dim"
        busy = "" if row.kind == "phase" else fmt.percent(100 * cells.share.mean())
        share = ((f"{busy:>{SHARE}}", ink),)
        label = fitted(f"{'▸' if here else ' '}{_label(row)}", max(where.gutter - 1, 1))
        yield ((f"{label} "[: where.gutter], ink), *line, *share * where.has_shares)
    if where.details > 2:
        yield rule("under the cursor", width)
    yield from details_rows(view, view.details(cell_us), width)[: where.details]


def _all_steps(view: TraceView, where: _Places, width: int) -> Iterator[Parts]:
    whole = replace(view, span=span_of(view.span.whole_us))
    steps, row = view.timeline.trace.steps, view.timeline.rows[0]
    yield rule(f"all {len(steps):,} steps · {duration(view.span.whole_us)}", width)
    cells = cells_of(row, 0.0, view.span.whole_us, where.columns)
    yield (("".ljust(where.gutter), "dim"), *lane(whole, row, cells, None, is_named=False))
    cell_us = view.span.whole_us / where.columns
    first, last = int(view.span.begin_us // cell_us), int(view.span.end_us / cell_us - 1e-9)
    bracket = f"└{'─' * (last - first - 1)}┘" if last > first else "▴"
    text = f"{' ' * (where.gutter + first)}{bracket} shown below"
    yield ((text if len(text) <= width else text[:width], "dim"),)


def _label(row: Row) -> str:
    """Return a lane's name; a thread's lanes have it once, without the command's name."""
    if row.kind in NAMED_BY_KIND:
        return row.kind
    return "" if row.depth else fmt.plain(row.label).partition(" (")[0]


# ── a lane ──────────────────────────────────────────────────────────────────────────────


def lane(
    view: TraceView, row: Row, cells: Cells, chosen: int | None, *, is_named: bool = True
) -> Parts:
    columns = len(cells.position)
    line, span = CellRow(columns), view.span
    cell_us = span.length_us / columns
    for step in view.timeline.trace.steps:
        if span.holds(step.begin_us):
            line.put(int((step.begin_us - span.begin_us) / cell_us), "┊", "border")
    positions, shares = cells.position.tolist(), cells.share.tolist()
    is_lit, begin = False, 0
    for position, run in groupby(positions):
        end = begin + sum(1 for _ in run)
        if position >= 0:
            if row.length_us[position] >= cell_us:
                is_lit = not is_lit
            fill, mark = _inks(view, row, position, is_lit=is_lit)
            blank = WAIT if fill == WAITS[0] else " "
            if position == chosen:
                fill, mark, blank = "cursor", "focus", " "
            _paint(line, shares[begin:end], begin, (blank, fill), mark)
            full = [column for column in range(begin, end) if shares[column] >= FULL]
            if is_named and len(full) >= LEAST_LABEL:
                ink = "dim" if blank == WAIT else fill
                line.put(full[0], _name(view, row, position, len(full)), ink)
        begin = end
    if chosen is None:
        line.mark(int((view.at_us - span.begin_us) // cell_us), "│")
    return line.parts


def _paint(
    line: CellRow, shares: list[float], begin: int, full: tuple[str, str], mark: str
) -> None:
    for column, share in enumerate(shares, begin):
        if share >= (HALF if full[0] == WAIT else FULL):
            line.put(column, *full)
        else:
            line.put(column, level_of(share), mark)


def hue_of(phase: Phase) -> int:
    metric = METRICS.get("your_code_ms" if phase == "other" else f"{phase}_ms")
    return (metric and metric.hue) or 0


def _inks(view: TraceView, row: Row, position: int, *, is_lit: bool) -> tuple[str, str]:
    """Return the inks of an event's full cells and of the others."""
    phase, event, trace = row.phase(position), int(row.events[position]), view.timeline.trace
    if phase == "data" or (event >= 0 and trace.names[trace.events.name[event]].startswith(LOADER)):
        return WAITS
    if phase is not None:
        return f"fill-{hue_of(phase)}", f"line-{hue_of(phase)}"
    kind = KINDS[trace.events.kind[event]] if event >= 0 else "overlap"
    return f"{'lit' if is_lit else 'dusk'}-{kind}", f"mark-{kind}"


def _name(view: TraceView, row: Row, position: int, width: int) -> str:
    event, trace, phase = int(row.events[position]), view.timeline.trace, row.phase(position)
    if phase is not None:
        took = f"{PHASE[phase]} {duration(float(row.length_us[position]))}"
        forms = (f"{took} ", PHASE[phase], SHORT.get(phase, phase if len(phase) < 5 else phase[:3]))
        return next((form for form in forms if len(form) <= width), "")
    return fmt.clip(_shown(trace.names[trace.events.name[event]]), width) if event >= 0 else ""


@lru_cache(maxsize=4096)
def _shown(name: str) -> str:
    """Return a name for a lane, in characters of one column each."""
    if name.startswith(LOADER):
        return "next(DataLoader) "
    return as_ascii(fmt.plain(short(name.rpartition(": ")[2]) or name))


# ── details of the event under the cursor ───────────────────────────────────────────────


def details_rows(view: TraceView, found: Details | None, width: int) -> list[Parts]:
    room = max(width - 2, 1)
    if found is None:
        where = f"nothing here at {duration(view.at_us)}" if view.row else "the trace has no events"
        return [((f" {fitted(where, room)}", "dim"),)]
    alarm = "bad" if found.kind == "sync" else "strong"
    return [
        ((f" {fmt.clip(fmt.plain(found.name), room)}", alarm),),
        ((f" {whole(facts(found), room)}", "text"),),
        ((f" {_stack(found.stack, room)}", "dim"),),
    ]


def facts(found: Details) -> list[str]:
    clauses = [f"{duration(found.duration_us)} from {duration(found.begin_us)}"]
    if found.kind == "sync":
        clauses[0] = f"waits {clauses[0]}"
    if found.kind is not None:
        clauses.append(fmt.plain(found.lane))
    if found.delay_us is not None:
        clauses.append(f"launched {duration(found.delay_us)} before it began")
    if found.copied_bytes:
        clauses.append(f"{fmt.significant(found.copied_bytes / 2**20)} MiB")
        if found.duration_us > 0:
            clauses.append(f"{fmt.significant(found.copied_bytes / found.duration_us / 1e3)} GB/s")
    return clauses


def _stack(names: Sequence[str], width: int) -> str:
    shown = ""
    for count in range(len(names), 0, -1):
        more = "… > " if count < len(names) else ""
        shown = f"in {more}{' > '.join(map(fmt.plain, names[-count:]))}"
        if len(shown) <= width:
            break
    return fmt.clip(shown, width)


class Lanes(Painted):
    """The lanes. A click puts the cursor, a drag pans, the wheel zooms around the pointer."""

    def __init__(
        self,
        view: TraceView,
        changed: Callable[[], object],
        summary: Callable[[int, int], Iterable[Parts]],
    ) -> None:
        """`summary` paints the free rows."""
        super().__init__(id="lanes")
        self.view = view
        self._changed, self._summary = changed, summary
        self._pressed_at: int | None = None
        self._dragged = False

    @property
    def cell_us(self) -> float:
        return self.view.span.length_us / self._places.columns

    @property
    def _places(self) -> _Places:
        return places(self.view, *self.size)

    def show(self, view: TraceView) -> None:
        self.view = view
        self.repaint()
        self._changed()

    def rows(self, width: int, height: int) -> Iterator[Parts]:
        where = places(self.view, width, height)
        above = list(timeline_rows(self.view, width, height))
        yield from above
        yield from [()] * (height - where.summary - len(above))
        yield from self._summary(width, where.summary)

    # ── the mouse ───────────────────────────────────────────────────────────────────────

    def time_at(self, x: int, span: Span | None = None) -> float:
        where, span = self._places, span or self.view.span
        column = min(max(x - where.gutter, 0), where.columns - 1)
        return span.begin_us + (column + 0.5) * span.length_us / where.columns

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self.capture_mouse()
        self._pressed_at, self._dragged = event.x, False

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._pressed_at in (None, event.x):
            return
        by_us = (self._pressed_at - event.x) * self.cell_us
        self._pressed_at, self._dragged = event.x, True
        self.show(self.view.panned(by_us))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Put the cursor, unless the lanes were dragged; in all steps, go there."""
        self.release_mouse()
        pressed, self._pressed_at = self._pressed_at, None
        if pressed is None or self._dragged:
            return
        where = self._places
        shown = _rows_in_sight(self.view.timeline.rows, self.view.lane, where.lanes)
        number = event.y - where.above
        if event.y < where.all_steps:
            self.show(self.view.at(self.time_at(event.x, span_of(self.view.span.whole_us))))
        elif number < 0:
            self.show(self.view.at(self.time_at(event.x)))
        elif number < len(shown):
            self.show(self.view.in_lane(shown[number]).at(self.time_at(event.x)))

    def wheeled(self, direction: int, x: int) -> None:
        self.show(self.view.zoomed(direction, self.time_at(x)))
