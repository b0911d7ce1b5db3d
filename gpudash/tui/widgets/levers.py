"""The ledger of the levers, on one axis: estimates are filled, proofs have a dot and whiskers.

What can be tried, is proven or set is always in sight; the rest is folded unless the cursor is
there.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from gpudash import format as fmt
from gpudash.present.cells import (
    CellRow,
    Parts,
    cut,
    exactly,
    first_in_sight,
    following,
    value_in,
    whole,
)
from gpudash.present.change_axis import Axis, PlacedAxis, shared_axis
from gpudash.present.history import rate_unit
from gpudash.present.ledger import (
    NO_DIFFERENCE,
    LedgerRow,
    LeverRow,
    Standing,
    axis_of,
    fold_text,
    ledger,
    legend,
    unfolded,
)
from gpudash.protocol.training import Lever
from gpudash.snapshot import Snapshot
from gpudash.tui.keys import key_for
from gpudash.tui.widgets.panel import HEAVY, THIN, Panel
from workloads.levers import Effect

TITLE, CHANGE = "¹lever", "from → to"
MOST_NAME, MOST_CHANGE = 18, 24
LEAST_NAME, LEAST_CHANGE = 6, 12
WORTH = 26
"""Columns of a figure as text."""
STATE = 16
"""Columns of how it is known; in a narrow ledger it stands in the figure's place."""
STATE_FROM = 100
LEAST_BAR = 8
"""Fewest columns of the axis."""
RUNS, CURSOR = "◐", "▸"
CLAUSE = re.compile(r"(?:\S+ ){2,}?\S*?(?=[.:;,](?: |$)|$)|.*")
"""The first clause of a summary with three words or more."""
IDLE = "·"
"""Nothing is foreseen of a lever."""
EFFECTS: dict[Effect, str] = {
    "next step": "from the next step",
    "new loader": "with a new loader",
    "rebuilt model": "with a rebuilt model and new weights",
}


class _LedgerColumns(NamedTuple):
    """The widths of the columns; 0 for one without room."""

    name: int
    change: int
    bar: int
    worth: int
    state: int


class LeverPanel(Panel):
    """The ledger; the cursor is on the first row, the proposed one, until the user moves it."""

    _ledger: tuple[LedgerRow, ...] = ()
    _unit = "samples/s"
    _why_not: str | None = None
    _axis = shared_axis(())
    _cursor = 0
    _moved = False  # whether the user has moved the cursor
    _first = 0  # the topmost visible lever

    def show(
        self, levers: Sequence[LeverRow], snapshot: Snapshot, why_not: str | None = None
    ) -> None:
        rows, unit = ledger(levers, snapshot, self._ledger), rate_unit(snapshot.results)
        now = rows, unit, why_not, axis_of(rows, snapshot.comparison)
        if now != (self._ledger, self._unit, self._why_not, self._axis):
            before = self.chosen
            self._ledger, self._unit, self._why_not, self._axis = now
            names = [one.row.lever.name for one in rows]
            if not self._moved:
                self._cursor = 0
            elif before is not None and before.name in names:  # its row may have changed
                self._cursor = names.index(before.name)
            self._cursor = min(self._cursor, max(len(rows) - 1, 0))
            self.repaint()

    @property
    def chosen(self) -> Lever | None:
        return self._ledger[self._cursor].row.lever if self._ledger else None

    @property
    def axis(self) -> PlacedAxis | None:
        """None without levers, or without room for it."""
        columns = _columns(self._ledger, self.inside.width)
        if not (self._ledger and columns.bar):
            return None
        return PlacedAxis(self._axis, _bar_begin(columns), columns.bar)

    @property
    def wanted_rows(self) -> int:
        """Rows for what is not folded, for the fold, and to explain the row under the cursor."""
        first, count = unfolded(self._ledger), len(self._ledger)
        return 2 + max(count if self._cursor >= first else first + (first < count), 4)

    @property
    def every_row(self) -> int:
        """Rows without a fold."""
        return 2 + len(self._ledger)

    @property
    def _open(self) -> int:
        """How many rows are not folded: all of them where there is room."""
        first, count = unfolded(self._ledger), len(self._ledger)
        return first if self._cursor < first and self.inside.height <= count else count

    @property
    def _is_folded(self) -> bool:
        return self._open < len(self._ledger)

    def move(self, direction: int) -> None:
        """Wrap around at both ends."""
        if self._ledger:
            self._choose((self._cursor + direction) % len(self._ledger))

    def scroll_rows(self, direction: int) -> None:
        """Move the cursor without wrapping around."""
        if 0 <= self._cursor + direction < len(self._ledger):
            self._choose(self._cursor + direction)

    def find(self, text: str) -> bool:
        """Move the cursor to the next lever whose name contains the text; return whether found."""
        names = [one.row.lever.name for one in self._ledger]
        if (found := following(names, self._cursor, text)) is not None:
            self._choose(found)
        return found is not None

    def _choose(self, index: int) -> None:
        self._cursor, self._moved = index, True
        self.repaint()

    def clicked(self, x: int, y: int) -> None:  # noqa: ARG002  # any column of a row
        """Choose the lever under the pointer, or edit it if it is chosen already."""
        index = y + self._first
        if index == self._cursor and self._ledger:
            self.act("edit")
        elif index < min(self._open + 1, len(self._ledger)):  # the fold opens at its first lever
            self._choose(index)

    # ── painting ────────────────────────────────────────────────────────────────────────

    def rule(self, width: int) -> Parts:
        ink, line = ("focus", HEAVY) if self.has_focus else ("border", THIN)
        columns = _columns(self._ledger, width)
        row, axis = CellRow(width, line, ink), _bar_begin(columns)
        row.put(0, " ", ink)
        for at, text, text_ink in ((3, TITLE, "strong"), (3 + columns.name, CHANGE, "dim")):
            row.put(at - 1, f" {text} ", text_ink)
        if columns.bar:
            for label in re.finditer(r"\S+(?: \S+)*", self._axis.labels(columns.bar)):
                row.put(axis + label.start(), label[0], "dim")
        end = axis + columns.bar + (columns.bar > 0)
        head = whole(
            legend(() if self._why_not else self._ledger, self._unit), width - end - 2, "  "
        )
        row.put(end - 1, f" {head} ", "dim")
        end += cell_len(head)
        why = fmt.plain(self._why_not or "")
        why = why if end + cell_len(why) + 4 <= width else "fixed"
        if why and end + cell_len(why) + 4 <= width:
            row.put(end + 2, f" {why} ", "busy")
        return row.parts

    def body(self, width: int, height: int) -> Iterator[Parts]:
        count, shown = len(self._ledger), min(self._open, height)
        if not count:
            why = textwrap.wrap(fmt.plain(self._why_not or ""), max(width - 1, 1))
            yield from (((f"   {line}", "faint"),) for line in ("no levers are known yet", *why))
            return
        self._first = first_in_sight(self._first, self._cursor, self._open, shown)
        columns = _columns(self._ledger, width)
        last = self._first + shown - 1
        has_fold = self._is_folded and last == self._open - 1 and shown < height
        for index in range(self._first, last + 1):
            more = [f"{self._first} more↑"] if self._first and index == self._first else []
            is_cut = index == last < count - 1 and not has_fold
            more += [f"{count - 1 - last} more↓"] if is_cut else []
            yield self._line(index, width, columns, " ".join(more))
        if has_fold:
            yield ((f"   {fold_text(self._ledger[self._open :])}", "faint"), ("  ↓", "dim"))
        yield from self._explanation(width, height - shown - has_fold)

    def _line(self, index: int, width: int, columns: _LedgerColumns, more: str) -> Parts:
        one, is_chosen = self._ledger[index], index == self._cursor
        is_fixed = one.standing is Standing.FIXED or bool(self._why_not and not one.is_running)
        ink = "dim" if one.standing >= Standing.NOT_FORESEEN or is_fixed else "text"
        mark = RUNS if one.is_running else CURSOR if is_chosen else " "
        here = "focus" if is_chosen and self.has_focus else "strong"
        row = [
            (f" {mark} ", "busy" if one.is_running else here),
            (set_cell_size(cut(fmt.plain(one.row.lever.name), columns.name - 1), columns.name),
             "strong" if is_chosen else ink),
            *_change(one, columns.change, "faint" if one.standing is Standing.FIXED else ink),
        ]  # fmt: skip
        room = width - _bar_begin(columns)
        if one.standing is Standing.FIXED:
            reason, bar = fmt.plain(one.state), columns.bar + 1 if columns.bar else 0
            at = bar if cell_len(reason) < room - bar else 0
            row.append((" " * at, ""))
            row.append((cut(reason, max(room - at - 1, 0)), "faint"))
        else:
            row += _worth(one, self._axis, columns, ink)
            row.append((cut(one.state, columns.state), "dim"))
        if more:
            kept = exactly(row, max(width - cell_len(more) - 1, 0))
            row = [*kept, (f" {more}", "dim")]
        return row

    def _explanation(self, width: int, height: int) -> Iterator[Parts]:
        if height < 1:
            return
        one = self._ledger[self._cursor]
        row, fixed, room = one.row, self._why_not or one.row.lever.refusal, max(width - 4, 1)
        values = "" if fixed else f" {key_for('screen.enter')} {fmt.plain(row.lever.valid)}"
        does = ""
        if not fixed and one.standing is not Standing.FIXED:
            does = f", {EFFECTS[row.lever.effect]}"
            does = does.replace(" and new weights", ", same weights") if row.keeps_weights else does
        clauses = [f"{row.lever.name}{does}: {row.lever.summary}", row.forecast, row.context]
        text = " ".join(fmt.plain(clause) for clause in clauses if clause)
        more = f" …{fmt.clip(values, room // 2)}"
        lines = textwrap.wrap(f"{text} {values}", room, max_lines=height, placeholder=more)
        yield from (((f"   {line}", "dim"),) for line in lines)


def _columns(rows: Sequence[LedgerRow], width: int) -> _LedgerColumns:
    """Without room the axis goes, then the state joins the figure."""
    room = max(width - 3, 0)
    names = max((cell_len(one.row.lever.name) for one in rows), default=LEAST_NAME)
    name = min(max(names + 2, len(TITLE) + 2), MOST_NAME, max(room // 3, 1))
    texts = ("".join(text for text, _ in _change(one, MOST_CHANGE, "")) for one in rows)
    widths = (cell_len(text.rstrip()) + 2 for text in texts)
    change = min(max([LEAST_CHANGE, *widths]), MOST_CHANGE, max(room - name, 0) // 2)
    state = STATE if width >= STATE_FROM else 0
    worth = min(WORTH, max(room - name - change - state, 0))
    bar = room - name - change - worth - state - 1
    return _LedgerColumns(name, change, bar if bar >= LEAST_BAR else 0, worth, state)


def _bar_begin(columns: _LedgerColumns) -> int:
    return 3 + columns.name + columns.change


def _change(one: LedgerRow, width: int, ink: str) -> Parts:
    """Return `[off] → on`, with the active value in brackets and bold, in at most `width` cells."""
    row = one.row
    before, after = fmt.plain(one.before or row.value), fmt.plain(one.after)
    if row.pending is not None:
        pending = fmt.plain(row.pending)
        texts = (f"{fmt.plain(row.value)} → {pending} …", f"→ {pending} …", "…")
        text = next((text for text in texts if cell_len(text) < width), "…")
        return ((set_cell_size(text, width), "busy"),)
    active = fmt.plain(row.value)
    sides = [f"[{text}]" if text == active and not one.is_running else text
             for text in (before, after)]  # fmt: skip
    if not after:
        return ((set_cell_size(value_in(sides[0], width - 1), width), ink),)
    arrow = " ⇄ " if one.is_running else " → "
    room = max(width - len(arrow) - 1, 0)  # of both values
    left = value_in(sides[0], max(room - cell_len(sides[1]), room // 2))
    right = value_in(sides[1], room - cell_len(left))
    inks = ["strong" if text.startswith("[") and ink == "text" else ink for text in sides]
    pad = " " * max(width - cell_len(left) - cell_len(right) - len(arrow), 0)
    return (left, inks[0]), (arrow, "dim"), (right, inks[1]), (pad, "")


def _worth(one: LedgerRow, axis: Axis, columns: _LedgerColumns, ink: str) -> Parts:
    """Return the bar and, directly right of it, the figure; an estimate without a bar has a `~`.

    Where nothing is foreseen, it is said what the lever is.
    """
    worth = one.worth or IDLE * (not one.state)
    if not columns.state:
        joined = ", ".join(filter(None, (worth, one.state)))
        short = NO_DIFFERENCE if one.is_undecided else worth or one.state
        worth = joined if cell_len(joined) <= columns.worth else short
    if not columns.bar:
        worth = f"~{worth}" if one.gain is not None else worth
        return ((set_cell_size(cut(worth, columns.worth), columns.worth), ink),)
    bar = _bar(one, axis, columns.bar).rstrip()
    room = columns.bar + 1 + columns.worth - cell_len(bar)
    if one.ends or one.state:
        return (bar, _bar_ink(one)), (set_cell_size(f" {cut(worth, room - 1)}", room), ink)
    clause = CLAUSE.match(fmt.plain(one.row.lever.summary))
    what = f"   {clause[0]}" if clause else ""
    room += columns.state - cell_len(worth) - 2
    return (bar, _bar_ink(one)), (f" {worth}", ink), (what * (cell_len(what) <= room), "faint")


def _bar(one: LedgerRow, axis: Axis, width: int) -> str:
    if one.proof is not None:
        return axis.bar(one.proof, width).replace("│", "┊")
    low, high = one.ends or (0.0, 0.0)
    return axis.estimate(low, high, width)


def _bar_ink(one: LedgerRow) -> str:
    if one.proof is None:
        return "rate" if one.gain is not None else "faint"
    low, _, high = one.proof
    return "better" if low > 0 else "bad" if high < 0 else "dim"
