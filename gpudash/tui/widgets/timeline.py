"""The timeline of a profile: a `TraceView` as rows of cells, and the widget of its lanes.

Full cells have a background, on which the event's name is printed. In other cells the height is
the filled share. Neighbouring events alternate in brightness.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

import msgspec
from textual import events

from gpudash import format as fmt
from gpudash.ascii import as_ascii
from gpudash.trace.model import KINDS
from gpudash.trace.names import short
from gpudash.tui.cells import Parts, fitted, level_of, whole
from gpudash.tui.charts.trace_view import Span, TraceView
from gpudash.tui.scroll import first_in_sight
from gpudash.tui.widgets.painted import Painted
from gpudash.views.timeline import Cells, Details, Row, cells_of

FULL = 0.9
"""Share of a cell from which it is drawn as full."""
LEAST_LABEL = 3
"""Fewest cells for an event's name."""
GUTTER = 16
"""Most columns of the lanes' names."""
SHARES_FROM = 60
"""Columns from which each lane ends with its busy share."""
SHARE = 6
DEEPEST = 12
"""Most levels by which a stack is indented."""
APART = 3
"""Columns between two labels of the ruler."""
NAMED_BY_KIND = ("waits", "overlap")
"""Kinds of rows that are named by their kind instead of their lane."""


class CellRow:
    """A row of cells that can be painted over."""

    def __init__(self, width: int) -> None:
        self._text = [" "] * width
        self._inks = ["text"] * width

    def put(self, column: int, text: str, ink: str) -> None:
        """Paint text; characters beyond the ends are left out."""
        for at, character in enumerate(text, column):
            if 0 <= at < len(self._text):
                self._text[at], self._inks[at] = character, ink

    def mark(self, column: int, glyph: str) -> None:
        """Put a glyph into a cell, and keep the cell's ink."""
        if 0 <= column < len(self._text):
            self._text[column] = glyph

    def is_free(self, begin: int, end: int) -> bool:
        """Return whether the cells exist and are blank."""
        return begin >= 0 and end <= len(self._text) and set(self._text[begin:end]) <= {" "}

    @property
    def parts(self) -> Parts:
        """The cells, grouped by ink."""
        grouped = groupby(zip(self._text, self._inks, strict=True), key=lambda cell: cell[1])
        return tuple(("".join(text for text, _ in cells), ink) for ink, cells in grouped)


class Places(msgspec.Struct, frozen=True):
    """The layout of a timeline in a widget of some size."""

    gutter: int
    columns: int
    """Columns of the time axis."""
    lanes: int
    """Rows of the lanes."""
    details: int
    """Rows below the lanes."""
    has_steps: bool
    has_shares: bool

    @property
    def above(self) -> int:
        """Number of rows above the lanes."""
        return 1 + self.has_steps


def places(view: TraceView, width: int, height: int) -> Places:
    """Return the layout for this size."""
    rows = view.timeline.rows
    longest = max((len(fmt.plain(row.label)) for row in rows), default=0) + 3
    gutter = min(longest, GUTTER, width // 3)
    has_steps = bool(view.timeline.trace.steps) and height >= 6
    has_shares = width >= SHARES_FROM
    columns = max(width - gutter - SHARE * has_shares, 1)
    room = height - 1 - has_steps
    least = 5 if height >= 14 else 2 if height >= 8 else 1 if height >= 4 else 0
    lanes = max(min(len(rows), room - least), 1)
    return Places(gutter, columns, lanes, max(room - lanes, 0), has_steps, has_shares)


def rows_in_sight(rows: Sequence[Row], cursor: int, height: int) -> list[int]:
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
    """Yield ruler, steps, lanes, and details of the event under the cursor."""
    where = places(view, width, height)
    span, cell_us = view.span, view.span.length_us / where.columns
    blank = " " * where.gutter
    yield ((blank, "dim"), *ruler(span, where.columns, view.at_us))
    if where.has_steps:
        yield ((fitted(" steps", where.gutter), "dim"), *_steps(view, where.columns))
    event = view.event(cell_us)
    shown = rows_in_sight(view.timeline.rows, view.lane, where.lanes)
    for number in shown:
        row, here = view.timeline.rows[number], number == view.lane
        cells = cells_of(row, span.begin_us, span.end_us, where.columns)
        line = lane(view, row, cells, event if here else None)
        ink = "strong" if here else "dim"
        share = ((f"{fmt.percent(100 * cells.share.mean()):>{SHARE}}", ink),)
        yield ((_label(row, where.gutter, here=here), ink), *line, *share * where.has_shares)
    if where.details > 2:
        yield ()
    yield from details_rows(view, view.details(cell_us), width, where.details - 1)


def _label(row: Row, width: int, *, here: bool) -> str:
    label = "" if row.depth else fmt.plain(row.label)
    name = row.kind if row.kind in NAMED_BY_KIND else label
    return fitted(f"{'▸' if here else ' '}{name}", width - 1) + " " if width > 1 else " " * width


# ── time ────────────────────────────────────────────────────────────────────────────────


def duration(us: float) -> str:
    """Return a duration in µs, ms or s."""
    if us <= 0:
        return "0 µs"
    if us < 1e3:
        return f"{fmt.significant(us)} µs"
    return f"{fmt.significant(us / 1e3)} ms" if us < 1e6 else f"{fmt.significant(us / 1e6)} s"


def ruler(span: Span, columns: int, cursor_us: float) -> Parts:
    """Return the time axis with a mark at the cursor."""
    line, cell_us = CellRow(columns), span.length_us / columns
    line.put(int((cursor_us - span.begin_us) // cell_us), "▾", "strong")
    for at_us, text in _ticks(span, columns):
        column = int((at_us - span.begin_us) / cell_us + 1e-6)
        if line.is_free(max(column - 1, 0), column + len(text)):
            line.put(column, text, "dim")
    return line.parts


def _ticks(span: Span, columns: int) -> Iterator[tuple[float, str]]:
    """Yield round moments with their labels, as many as fit."""
    power = math.floor(math.log10(span.length_us / columns))
    rounds = [nice * 10.0**one for one in range(power, power + 4) for nice in (1, 2, 5)]
    for step_us in rounds:
        last = math.floor(span.end_us / step_us + 1e-9)
        width = len(_moment(last * step_us, step_us))
        if step_us * columns >= (width + APART) * span.length_us:
            break
    for number in range(math.ceil(span.begin_us / step_us - 1e-9), last + 1):
        yield number * step_us, _moment(number * step_us, step_us)


def _moment(at_us: float, step_us: float) -> str:
    """Return a moment with enough digits to differ from the next one."""
    scale, unit = (1e3, "ms") if step_us >= 10 else (1.0, "µs")
    decimals = max(-math.floor(math.log10(step_us / scale) + 1e-9), 0)
    return f"{at_us / scale:,.{decimals}f} {unit}"


def _steps(view: TraceView, columns: int) -> Parts:
    """Return the borders of the steps, with the number and duration of each."""
    line, span = CellRow(columns), view.span
    cell_us = span.length_us / columns
    for step in view.timeline.trace.steps:
        if step.end_us <= span.begin_us or step.begin_us >= span.end_us:
            continue
        border = math.floor((step.begin_us - span.begin_us) / cell_us)
        room = min(math.floor((step.end_us - span.begin_us) / cell_us), columns)
        begin = max(border + 1, 0)
        line.put(border, "┊", "dim")
        took = duration(step.end_us - step.begin_us)
        for text in (f"{step.number:,} · {took}", f"{step.number:,}"):
            if begin + len(text) <= room:
                line.put(begin, text, "dim")
                break
    return line.parts


# ── a lane ──────────────────────────────────────────────────────────────────────────────


def lane(view: TraceView, row: Row, cells: Cells, chosen: int | None) -> Parts:
    """Return a lane as cells; the event `chosen` is highlighted."""
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
            kind = _kind(view, row, position)
            fill = "cursor" if position == chosen else f"{'lit' if is_lit else 'dusk'}-{kind}"
            mark = "focus" if position == chosen else f"mark-{kind}"
            _paint(line, shares[begin:end], begin, fill, mark)
            full = [column for column in range(begin, end) if shares[column] >= FULL]
            if len(full) >= LEAST_LABEL:
                line.put(full[0], fmt.clip(_name(view, row, position), len(full)), fill)
        begin = end
    if chosen is None:
        line.mark(int((view.at_us - span.begin_us) // cell_us), "│")
    return line.parts


def _paint(line: CellRow, shares: list[float], begin: int, fill: str, mark: str) -> None:
    for column, share in enumerate(shares, begin):
        if share >= FULL:
            line.put(column, " ", fill)
        else:
            line.put(column, level_of(share), mark)


def _kind(view: TraceView, row: Row, position: int) -> str:
    event = int(row.events[position])
    return KINDS[view.timeline.trace.events.kind[event]] if event >= 0 else "overlap"


def _name(view: TraceView, row: Row, position: int) -> str:
    event, trace = int(row.events[position]), view.timeline.trace
    return _shown(trace.names[trace.events.name[event]]) if event >= 0 else ""


@lru_cache(maxsize=4096)
def _shown(name: str) -> str:
    """Return a name for a lane, in characters of one column each."""
    return as_ascii(fmt.plain(short(name.rpartition(": ")[2]) or name))


# ── details of the event under the cursor ───────────────────────────────────────────────


def details_rows(view: TraceView, found: Details | None, width: int, height: int) -> list[Parts]:
    """Return the event under the cursor: name, times, operator, and the enclosing calls."""
    room = max(width - 2, 1)
    if found is None:
        where = f"nothing here at {duration(view.at_us)}" if view.row else "the trace has no events"
        return [((f" {fitted(where, room)}", "dim"),)]
    alarm = "bad" if found.kind == "sync" else "strong"
    rows: list[Parts] = [
        ((f" {fmt.clip(fmt.plain(found.name), room)}", alarm),),
        ((f" {whole(facts(found), room)}", "text"),),
    ]
    if found.operator:
        rows.append(((f" {fmt.clip(f'operator {fmt.plain(found.operator)}', room)}", "text"),))
    if len(found.stack) > height - len(rows):
        return [*rows, ((f" {_stack(found.stack, room)}", "dim"),)]
    for depth, name in enumerate(found.stack):
        indent = "  " * min(depth, DEEPEST)
        rows.append(((f" {fmt.clip(f'{indent}{fmt.plain(name)}', room)}", "dim"),))
    return rows


def facts(found: Details) -> list[str]:
    """Return the facts about an event, as clauses."""
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
    """Return the innermost names that fit, with `…` for the others."""
    shown = ""
    for count in range(len(names), 0, -1):
        more = "… > " if count < len(names) else ""
        shown = f"in {more}{' > '.join(map(fmt.plain, names[-count:]))}"
        if len(shown) <= width:
            break
    return fmt.clip(shown, width)


LEAST_DRAG = 1
"""Fewest columns of a drag; less is a click."""


class Lanes(Painted):
    """The lanes. A click puts the cursor, a drag pans, the wheel zooms around the pointer."""

    def __init__(self, view: TraceView, changed: Callable[[], object]) -> None:
        """Call `changed` whenever the view changes."""
        super().__init__(id="lanes")
        self.view = view
        self._changed = changed
        self._pressed_at: int | None = None
        self._dragged = False

    @property
    def cell_us(self) -> float:
        """Time that a cell shows, in µs."""
        return self.view.span.length_us / self._places.columns

    @property
    def _places(self) -> Places:
        return places(self.view, *self.size)

    def show(self, view: TraceView) -> None:
        """Show this view."""
        self.view = view
        self.repaint()
        self._changed()

    def rows(self, width: int, height: int) -> Iterator[Parts]:
        """Return the timeline's rows."""
        return timeline_rows(self.view, width, height)

    # ── the mouse ───────────────────────────────────────────────────────────────────────

    def time_at(self, x: int) -> float:
        """Return the moment in this column, or in the nearest one of the trace."""
        where = self._places
        column = min(max(x - where.gutter, 0), where.columns - 1)
        return self.view.span.begin_us + (column + 0.5) * self.cell_us

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Remember where a drag may begin."""
        self.capture_mouse()
        self._pressed_at, self._dragged = event.x, False

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Pan while the lanes are dragged."""
        if self._pressed_at is None or abs(event.x - self._pressed_at) < LEAST_DRAG:
            return
        by_us = (self._pressed_at - event.x) * self.cell_us
        self._pressed_at, self._dragged = event.x, True
        self.show(self.view.panned(by_us))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Put the cursor, unless the lanes were dragged."""
        self.release_mouse()
        pressed, self._pressed_at = self._pressed_at, None
        if pressed is None or self._dragged:
            return
        where = self._places
        shown = rows_in_sight(self.view.timeline.rows, self.view.lane, where.lanes)
        number = event.y - where.above
        view = self.view.in_lane(shown[number]) if 0 <= number < len(shown) else self.view
        self.show(view.at(self.time_at(event.x)))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show less time."""
        event.stop()
        self.show(self.view.zoomed(-1, self.time_at(event.x)))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show more time."""
        event.stop()
        self.show(self.view.zoomed(+1, self.time_at(event.x)))
