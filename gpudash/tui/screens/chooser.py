"""The chooser: a dialog with a lever's values and their measurements, to set or compare one."""

from typing import ClassVar, Literal

import msgspec
from textual import events
from textual.binding import Binding, BindingType

from gpudash.tui.screens.dialog import Dialog
from gpudash.tui.widgets.values import ValueTable
from workloads.levers import AUTO, Count, LeverError

PAGE = 10
ALL = 1_000_000
MOST_DIGITS = 12
"""Most digits that can be typed, so that the refusal of a number is one line."""


class Chosen(msgspec.Struct, frozen=True):
    """The chosen value, and whether to set it or compare it with the present one by an A/B."""

    verb: Literal["set", "compare"]
    value: str


class Chooser(Dialog[Chosen]):
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
            self.dismiss(Chosen("set", value) if value != self._table.now else None)

    def action_compare(self) -> None:
        """Answer with the value, to be compared with the present one."""
        value = self._value()
        if value == self._table.now:
            self._table.complain(f"it is {value} now: choose what to compare that with")
        elif value == AUTO:
            self._table.complain(f"{AUTO} stands for another value: choose that one")
        elif value is not None:
            self.dismiss(Chosen("compare", value))

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
