"""The chooser: a dialog with a lever's values and what A/Bs have shown, to set or compare one."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

import msgspec
from rich.cells import cell_len, set_cell_size
from textual import events
from textual.binding import Binding, BindingType

from gpudash import format as fmt
from gpudash.tui.cells import Cell, Parts, cell, cut
from gpudash.tui.lever_values import MeasuredValue
from gpudash.tui.screens.dialog import Dialog
from gpudash.tui.scroll import first_in_sight
from gpudash.tui.widgets.painted import Scrolled
from gpudash.tui.widgets.panel import Panel, PanelFrame
from workloads.levers import AUTO, Count, Lever, LeverError

WIDTH = 66
MARGIN = 4
"""Columns for the cursor, and after the value."""
MOST_VALUE = 24
CHANGE_WIDTH = 8
MOST = 9.995
"""A larger change is shown as `> +999 %`."""


class Columns(NamedTuple):
    """The widths of the columns; 0 for one without room."""

    value: int
    change: int
    how: int

    def head(self) -> str:
        """Return the row of titles."""
        change = f"{'change':>{self.change}}" if self.change else ""
        how = "  how" if self.how else ""
        return f"{'':{MARGIN - 1}}{fmt.clip('value', self.value):<{self.value}}{change}{how}"


class ValueTable(Panel, Scrolled):
    """The values with a cursor; a typed number takes the place of the value under it."""

    DEFAULT_CSS = "ValueTable { background: $panel; }"
    boxed = True

    def __init__(
        self,
        lever: Lever,
        now: str,
        values: tuple[MeasuredValue, ...],
        *,
        compares: bool = False,
    ) -> None:
        """`values` are from `gpudash.tui.lever_values`; `now` is the present value.

        With `compares` no value can be set: Enter starts an A/B.
        """
        super().__init__()
        self.lever, self.now, self.compares = lever, now, compares
        self._values = values
        names = [one.value for one in values]
        self._cursor = (
            _default_b(names, now) if compares else names.index(now) if now in names else 0
        )
        self._first = 0
        self.typed = ""
        """The text typed so far."""
        self._why_not = ""
        # not in the stylesheet, as the height depends on the content
        self.styles.width, self.styles.max_width = WIDTH, "100%"
        self.styles.height, self.styles.max_height = len(values) + 4, "100%"

    @property
    def asked(self) -> str:
        """The typed text, or else the value under the cursor."""
        return self.typed or (self._values[self._cursor].value if self._values else "")

    def type(self, text: str) -> None:
        """Set the text typed so far."""
        self.typed, self._why_not = text, ""
        self.repaint()

    def complain(self, line: str) -> None:
        """Show why the value is refused, until the next key."""
        self._why_not = line
        self.repaint()

    def scroll_rows(self, direction: int) -> None:
        """Move the cursor by rows, as far as there are values."""
        self._cursor = min(max(self._cursor + direction, 0), max(len(self._values) - 1, 0))
        self.type("")

    def clicked(self, x: int, y: int) -> None:  # noqa: ARG002  # any column of a row
        """Choose the value under the pointer, or set it if it is chosen already."""
        index = y - 1 + self._first
        if not 1 <= y <= self._shown(self.inside.height) or index >= len(self._values):
            return
        if index == self._cursor and not self.typed:
            self.act("screen.set")
        else:
            self.scroll_rows(index - self._cursor)

    # ── painting ────────────────────────────────────────────────────────────────────────

    def frame(self) -> PanelFrame:
        """Return the lever's name, the effect of a change, and the keys."""
        against = f"A/B against {fmt.plain(self.now)}"
        keys: tuple[Cell, ...] = (cell(f"enter {against}", "key", action="screen.compare"),)
        if not self.compares:
            keys = (
                cell("enter set", "key", action="screen.set"),
                cell(f"a {against}", "key", rank=1, action="screen.compare"),
            )
        return PanelFrame(
            top=(cell(fmt.plain(self.lever.name), "strong"),),
            top_right=(cell(self.lever.effect, "dim", rank=1),),
            bottom=(*keys, cell("c code", "key", rank=2, action="screen.code")),
            bottom_right=(cell("esc", "dim", rank=2, action="screen.dismiss(None)"),),
        )

    def body(self, width: int, height: int) -> Iterator[Parts]:
        """Yield the head, the values and the line for typed text."""
        columns = self._columns(width)
        yield ((columns.head(), "head"),)
        shown, count = self._shown(height), len(self._values)
        self._first = first_in_sight(self._first, self._cursor, count, shown)
        for index in range(self._first, min(self._first + shown, count)):
            yield self._row(index, columns)
        yield self._last_line(width)

    def _columns(self, width: int) -> Columns:
        """Return the widths; without room, sources are left out first, then changes."""
        names = max((cell_len(fmt.plain(one.value)) for one in self._values), default=0)
        value = max(min(max(names, len("value")), MOST_VALUE, width - MARGIN), 1)
        left = width - MARGIN - value
        change = CHANGE_WIDTH if left >= CHANGE_WIDTH else 0
        how = max((len(one.how) for one in self._values), default=0)
        how = max(how, len("how")) + 2 if how else 0
        return Columns(value, change, how if left - change >= how else 0)

    def _row(self, index: int, columns: Columns) -> Parts:
        one = self._values[index]
        now, chosen = one.value == self.now, index == self._cursor and not self.typed
        name = fmt.plain(one.value)
        if cell_len(name) > columns.value:  # numbers are not cut
            name = "…" if any(map(str.isdigit, name)) else cut(name, columns.value)
        change = "now" if now else change_text(one)
        parts = (
            (
                f" {'▸' if chosen else ' '} {set_cell_size(name, columns.value)}",
                "strong" if now else "text",
            ),
            (f"{change:>{columns.change}}" if columns.change else "", "text"),
            (f"  {one.how:<{columns.how - 2}}" if columns.how else "", "dim"),
        )
        return tuple((text, "cursor") for text, _ in parts) if chosen else parts

    def _shown(self, height: int) -> int:
        return max(min(len(self._values), height - 2), 1)

    def _last_line(self, width: int) -> Parts:
        if self._why_not:
            return ((fmt.clip(f" {fmt.plain(self._why_not)}", width), "busy"),)
        if self.typed:
            return (f" {self.lever.name} = ", "dim"), (f"{self.typed}▏", "strong")
        hidden = len(self._values) - self._shown(self.inside.height)
        more = f" {hidden} more: ↑↓" if hidden > 0 else ""
        lever, hints = self.lever, [""]
        if isinstance(lever, Count):
            hints = [f" type any number to {lever.maximum:,}", " type any number", ""]
        texts = (" ·".join(filter(None, (more, hint))) for hint in hints)
        text = next((text for text in texts if len(text) <= width), "")
        return ((text, "dim"),)


def _default_b(names: Sequence[str], now: str) -> int:
    """Return the index of the value to compare with the present one: the next, or the last."""
    others = [index for index, name in enumerate(names) if name not in (now, AUTO)]
    after = (index for index in others if now in names[:index])
    return next(after, others[-1] if others else 0)


def change_text(one: MeasuredValue) -> str:
    """Return a change in percent, with a decimal below 10 %: `+40 %`, `-1.2 %`, `> +999 %`."""
    change = one.change
    if change is None:
        return ""
    if change > MOST:
        return "> +999 %"
    return f"{100 * change:+z.{0 if abs(change) >= 0.0995 else 1}f} %"


PAGE = 10
ALL = 1_000_000
MOST_DIGITS = 12
"""Most digits that can be typed, so that the refusal of a number is one line."""


class ChosenValue(msgspec.Struct, frozen=True):
    """The chosen value, and whether to set it or compare it with the present one by an A/B."""

    verb: Literal["set", "compare"]
    value: str


class Chooser(Dialog[ChosenValue]):
    """Asks for a value of a lever; choosing the present value answers None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "set", "set", show=False),
        Binding("a", "compare", "A/B", show=False),
        Binding("c", "code", "code", show=False),
        Binding("down,j", "move(1)", "next", show=False),
        Binding("up,k", "move(-1)", "previous", show=False),
        Binding("pagedown", f"move({PAGE})", "further", show=False),
        Binding("pageup", f"move({-PAGE})", "back", show=False),
        Binding("end", f"move({ALL})", "last", show=False),
        Binding("home", f"move({-ALL})", "first", show=False),
    ]

    def __init__(self, table: ValueTable) -> None:
        super().__init__(table)
        self._table = table

    def on_key(self, event: events.Key) -> None:
        """Add a digit to the typed number, or erase the last one: in the order of the keys."""
        digit = event.character or ""
        if event.key == "backspace":
            event.stop()
            self._table.type(self._table.typed[:-1])
        elif isinstance(self._table.lever, Count) and digit.isascii() and digit.isdigit():
            event.stop()
            # a digit must not vanish: a number that is too long is refused as it was typed
            if len(self._table.typed) < MOST_DIGITS:
                self._table.type(self._table.typed + digit)
            else:
                self._table.complain(f"a number has at most {MOST_DIGITS} digits")

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self._table.scroll_rows(rows)

    def action_set(self) -> None:
        """Answer with the value, to be set."""
        if self._table.compares:
            self.action_compare()
            return
        value = self._value()
        if value is not None:
            self.dismiss(ChosenValue("set", value) if value != self._table.now else None)

    def action_compare(self) -> None:
        """Answer with the value, to be compared with the present one."""
        value = self._value()
        if value == self._table.now:
            self._table.complain(f"it is {value} now: choose what to compare that with")
        elif value == AUTO:
            self._table.complain(f"{AUTO} stands for another value: choose that one")
        elif value is not None:
            self.dismiss(ChosenValue("compare", value))

    def action_code(self) -> None:
        """Show the lines of PyTorch that do the same; the chooser stays open below."""
        value = self._value()
        if value is not None:
            action = f"code_of({self._table.lever.name!r}, {value!r})"
            self.app.call_later(self.app.run_action, action)

    def _value(self) -> str | None:
        """Return the chosen value; None if it is not valid, and the table shows why."""
        lever, asked = self._table.lever, self._table.asked
        try:
            return lever.canonical(asked)
        except LeverError:
            self._table.complain(f"{asked} is not valid: {lever.valid}")
            return None
