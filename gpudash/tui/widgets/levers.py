"""The lever panel: every lever with its value, and an explanation of the one under the cursor."""

import re
import textwrap
from collections.abc import Iterator
from itertools import chain, repeat

from rich.cells import cell_len, set_cell_size

from gpudash import format as fmt
from gpudash.tui.bars import button
from gpudash.tui.cells import Cell, Parts, beside, cell
from gpudash.tui.keys import key_for
from gpudash.tui.lever_values import LeverRow
from gpudash.tui.scroll import first_in_sight
from gpudash.tui.widgets.painted import Scrolled
from gpudash.tui.widgets.panel import MARGIN, Panel, PanelFrame
from workloads.levers import Effect, Lever

TITLE = "⁴levers"
SIDE_BY_SIDE = 64
"""Columns from which the explanation is beside the list instead of below it."""
LIST_WIDTH = 36
LEAST_EXPLAINED = 3
"""Fewest rows for an explanation below the list."""
LEAST_NAME = 6
VALUE_WIDTH = 9
"""Columns kept for a value if its lever's name is cut."""
MARKS: dict[Effect, str] = {"next step": "", "new loader": "◦", "rebuilt model": "!"}
"""Marks for the cost of a change."""
LEGEND = {"◦": "◦ new loader", "!": "! new weights"}
REBUILT = "! rebuilt model"
"""The legend of `!` for a user's script, which keeps its weights."""
EFFECTS: dict[Effect, str] = {
    "next step": "from the next step",
    "new loader": "with a new loader",
    "rebuilt model": "with a rebuilt model and new weights",
}


class LeverPanel(Panel, Scrolled):
    """The levers of the workload; the app moves the cursor and makes the change."""

    _levers: tuple[LeverRow, ...] = ()
    _why_not: str | None = None
    _undo = ""
    _cursor = 0
    _moved = False  # whether the user has moved the cursor
    _first = 0  # the topmost visible lever

    def show(
        self, levers: tuple[LeverRow, ...], why_not: str | None = None, undo: str = ""
    ) -> None:
        """Update the values, why they cannot be changed, and what undo would do."""
        if (levers, why_not, undo) != (self._levers, self._why_not, self._undo):
            before = self.chosen
            self._levers, self._why_not, self._undo = levers, why_not, undo
            names = [row.lever.name for row in levers]
            if before is not None and before.name in names:  # its row may have changed
                self._cursor = names.index(before.name)
            self._cursor = min(self._cursor, max(len(levers) - 1, 0))
            if not self._moved:
                acting = (i for i, row in enumerate(levers) if row.acts and not row.refusal)
                self._cursor = next(acting, self._cursor)
            self.repaint()

    @property
    def chosen(self) -> Lever | None:
        """The lever under the cursor."""
        return self._levers[self._cursor].lever if self._levers else None

    def move(self, direction: int) -> None:
        """Move the cursor down (+1) or up (-1), wrapping around."""
        if self._levers:
            self._choose((self._cursor + direction) % len(self._levers))

    def scroll_rows(self, direction: int) -> None:
        """Move the cursor up (-1) or down (+1), without wrapping around."""
        if 0 <= self._cursor + direction < len(self._levers):
            self._choose(self._cursor + direction)

    def find(self, text: str) -> bool:
        """Move the cursor to the next lever whose name contains the text; return whether found."""
        count = len(self._levers)
        for index in (*range(self._cursor + 1, count), *range(min(self._cursor + 1, count))):
            if text.lower() in self._levers[index].lever.name.lower():
                self._choose(index)
                return True
        return False

    def _choose(self, index: int) -> None:
        self._cursor, self._moved = index, True
        self.repaint()

    def clicked(self, x: int, y: int) -> None:
        """Choose the lever under the pointer, or edit it if it is chosen already."""
        width, height = self.inside
        in_list = x < (LIST_WIDTH if width >= SIDE_BY_SIDE else width)
        index = y + self._first
        if not in_list or y >= self._list_height(width, height) or index >= len(self._levers):
            return
        if index == self._cursor:
            self.act("edit")
        else:
            self._choose(index)

    # ── painting ────────────────────────────────────────────────────────────────────────

    def frame(self) -> PanelFrame:
        """Return the title, why nothing can be changed, what undo would do, and the legend."""
        marks = {MARKS[row.lever.effect] for row in self._levers}
        kept = any(row.keeps_weights for row in self._levers)
        legend = {**LEGEND, "!": REBUILT} if kept else LEGEND
        why_not = fmt.plain(self._why_not or "")
        if why_not and cell_len(why_not) + cell_len(TITLE) + 3 * MARGIN > self.size.width:
            why_not = "read only"
        return PanelFrame(
            top=(cell(TITLE, "strong"), *([cell(why_not, "busy", rank=2)] if why_not else [])),
            top_right=(self._undo_button(),) if self._undo and not why_not else (),
            bottom=tuple(
                cell(what, "dim", rank=1) for mark, what in legend.items() if mark in marks
            ),
        )

    def _undo_button(self) -> Cell:
        label = fmt.plain(self._undo)
        if "=" not in label:
            return button(f"undo {label}", "undo", rank=2)
        if self.size.width < SIDE_BY_SIDE:  # without the lever's name
            label = label.partition("=")[2]
        return button(f"back to {_cut(label, 20)}", "undo", rank=2)

    def body(self, width: int, height: int) -> Iterator[Parts]:
        """Yield the list, and the explanation below or beside it."""
        if width < SIDE_BY_SIDE:
            shown = self._list_height(width, height)
            yield from self._list(width, shown)
            if shown < height and self._levers:
                caption = (("─ ", "border"), (f"{self._does()} ", "dim"))
                room = width - sum(cell_len(text) for text, _ in caption)
                captioned = room > 0
                line = ("─" * (room if captioned else width), "border")
                yield (*caption, line) if captioned else (line,)
                yield from self._explanation(width - 1, height - shown - 1, captioned=captioned)
            return
        levers = chain(self._list(LIST_WIDTH, height), repeat((), height))
        explanation = self._explanation(width - LIST_WIDTH - 2, height)
        yield from beside(levers, explanation, LIST_WIDTH, "│", "border")

    def _list_height(self, width: int, height: int) -> int:
        """Return the rows of the list: an explanation below it never hides a lever."""
        if width >= SIDE_BY_SIDE:
            return height
        left = height - len(self._levers) - 1
        return len(self._levers) if left >= LEAST_EXPLAINED else height

    def _list(self, width: int, height: int) -> Iterator[Parts]:
        count = len(self._levers)
        if not count:
            reason = _wrap(self._why_not or "", width)
            yield from (((f" {line}", "dim"),) for line in ("none known", *reason))
            return
        self._first = first_in_sight(self._first, self._cursor, count, height)
        last = min(self._first + height, count) - 1
        above, below = self._first, count - 1 - last
        column = max((cell_len(_named(row)) for row in self._levers), default=0) + 1
        for index in range(above, last + 1):
            more = [f"{above} more↑"] if above and index == above else []
            more += [f"{below} more↓"] if below and index == last else []
            yield self._row(index, width, column, " ".join(more))

    def _row(self, index: int, width: int, column: int, more: str) -> Parts:
        """Return a lever's row with its value at `column`; `more` counts hidden levers."""
        row, under_cursor = self._levers[index], index == self._cursor
        room = width - 1 - (cell_len(more) + 1 if more else 0)  # after the cursor's column
        name = _named(row)
        beside = max(room - cell_len(name) - 1, min(room - LEAST_NAME, VALUE_WIDTH), 0)
        *fuller, least = _values(row)
        value = next(
            (text for text in fuller if cell_len(text) <= room - column),
            next((text for text in (*fuller, least) if cell_len(text) <= beside), "…"),
        )
        if value == "…" and not any(character.isdigit() for character in row.value):
            value = _cut(fmt.plain(row.value), beside)
        # a long value begins left of the column, and a longer one cuts the name
        column = max(min(column, room - cell_len(value)), 0)
        name = set_cell_size(_cut(name, column - 1), column)
        value = set_cell_size(value, max(room - column, 0))
        tail = f" {more}" if more else ""
        if under_cursor:
            return ((f"▸{name}{value}{tail}", "cursor"),)
        changed = "strong" if row.default is not None else "text"
        ink = (
            "dim"
            if self._why_not or not row.acts or row.refusal
            else "busy"
            if row.pending is not None
            else changed
        )
        return (f" {name}", "dim"), (value, ink), (tail, "dim")

    def _does(self) -> str:
        """Return when a change of the lever under the cursor takes effect, or why none can."""
        row = self._levers[self._cursor]
        if fixed := self._why_not or row.refusal:
            return fmt.plain(fixed)
        does = EFFECTS[row.lever.effect] if row.acts else "needs a GPU: does nothing here"
        return does.replace(" and new weights", ", same weights") if row.keeps_weights else does

    def _explanation(self, width: int, height: int, *, captioned: bool = False) -> Iterator[Parts]:
        """Yield the explanation of the lever under the cursor.

        Without room the summary loses its last clauses. `captioned`: the line above says when a
        change takes effect, or why none is possible.
        """
        if not self._levers:
            return
        row = self._levers[self._cursor]
        summary = _wrap(row.lever.summary, width)
        default = f"; default {row.default}" if row.default is not None else ""
        values = _wrap(f"{row.lever.valid}{default}", width) if not row.refusal else []
        fits = _wrap(row.forecast, width)
        fixed = self._why_not or row.refusal
        effect = _wrap(self._does(), width) if not captioned else []
        keys = f" · {key_for('compare')} A/B · {key_for('screen.enter')} values"
        if effect and row.acts and not fixed and cell_len(effect[0] + keys) < width:
            effect[0] += keys
        result = _wrap(f"A/B: {row.result}", width) if row.result else []
        context = _wrap(row.context, width)
        rest = [*effect, *fits, *result, *context]
        if len(summary) + len(values) + len(rest) > height:
            values = []  # Enter shows them
        summary = _shortened(row.lever.summary, width, max(height - len(rest), 1))
        for ink, lines in (
            ("text", summary),
            ("dim", [*values, *effect]),
            ("text", fits),
            ("strong", result),
            ("dim", context),
        ):
            yield from (((f" {line}", ink),) for line in lines)


def _named(row: LeverRow) -> str:
    mark = MARKS[row.lever.effect]
    return f"{fmt.plain(row.lever.name)} {mark}".rstrip()


def _values(row: LeverRow) -> Iterator[str]:
    """Yield the value as text, longest first: with the other values and the default, or alone."""
    value, values = fmt.plain(row.value), row.lever.values
    if row.pending is not None:
        pending = fmt.plain(row.pending)
        yield from (f"{value} → {pending} …", f"→ {pending} …")
        return
    both = len(values) == 2 and value in values and not row.refusal
    bracketed = " ".join(f"[{one}]" if one == value else one for one in values)
    for text in (bracketed, value) if both else (value,):
        if row.default is not None:
            yield f"{text}  default {fmt.plain(row.default)}"
        yield text
    yield value


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(fmt.plain(text), max(width - 1, 1))


def _shortened(text: str, width: int, rows: int) -> list[str]:
    """Return the text in at most this many rows: its first whole clauses, or its first words."""
    lines = _wrap(text, width)
    if len(lines) <= rows:
        return lines
    ends = [match.start() for match in re.finditer(r"[.;:] ", text)]
    shorter = (_wrap(f"{text[:end]} …", width) for end in reversed(ends))
    cut = [*lines[: rows - 1], _cut(f"{lines[rows - 1]}…", width, force=True)]
    return next((clauses for clauses in shorter if len(clauses) <= rows), cut)


def _cut(text: str, width: int, *, force: bool = False) -> str:
    """Return the text in at most this many terminal cells; `…` marks that it was cut."""
    if cell_len(text) <= width and not force:
        return text
    return f"{set_cell_size(text.rstrip('…'), max(width - 1, 0)).rstrip()}…" if width > 0 else ""
