"""The chooser: a dialog with a lever's values and what A/Bs have shown, to set or compare one."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec
from rich.cells import cell_len, set_cell_size
from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gpudash.format import plain
from gpudash.present.cells import value_in
from gpudash.present.ledger import MeasuredValue
from gpudash.protocol.training import Lever
from gpudash.tui.screens.dialog import Dialog, framed, ways
from workloads.levers import AUTO

MOST_VALUE = 24
"""Most columns of a value."""
MOST_DIGITS = 12
"""Most digits that can be typed, so that the refusal of a number is one line."""


class ChosenValue(msgspec.Struct, frozen=True):
    """The chosen value, and whether to set it or compare it with the present one by an A/B."""

    verb: Literal["set", "compare"]
    value: str


class Chooser(Dialog[ChosenValue]):
    """Asks for a value, or takes a typed number; choosing the present value answers None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "set", "set", show=False, priority=True),
        Binding("a", "compare", "A/B", show=False),
        Binding("c", "code", "code", show=False),
        Binding("down,j", "move(1)", "next", show=False, priority=True),
        Binding("up,k", "move(-1)", "previous", show=False, priority=True),
    ]

    def __init__(
        self, lever: Lever, now: str, values: Sequence[MeasuredValue], *, compares: bool = False
    ) -> None:
        """With `compares` no value can be set: Enter starts an A/B."""
        self._lever, self._now, self._compares = lever, now, compares
        self._typed, self._clicked = "", ""
        self._names = [one.value for one in values]
        self._values = OptionList(*_options(values, now), markup=False)
        at = self._names.index(now) if now in self._names else 0
        self._values.highlighted = _default_b(self._names, now) if compares else at
        self._said = Static(markup=False)
        against = f"A/B against {plain(now)}"
        sets = {"enter set": "set", f"a {against}": "compare"}
        keys = {f"enter {against}": "compare"} if compares else sets
        keys |= {"c code": "code", "esc cancels": "dismiss(None)"}
        hint = Static(ways(keys), classes="dialog-hint")
        super().__init__(framed(f"{lever.name}, {lever.effect}", self._values, self._said, hint))
        self._type("")

    def _type(self, typed: str) -> None:
        self._typed = typed
        lever = self._lever
        most = f"type any number to {lever.maximum:,}" if lever.kind == "count" else ""
        self._said.update(f"{lever.name} = {typed}▏" if typed else most)

    def _complain(self, line: str) -> None:
        self._said.update(plain(line))

    def on_option_list_option_highlighted(self) -> None:
        self._type("")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Set the value on the second click; the first one chooses it."""
        event.stop()
        before, self._clicked = self._clicked, event.option.id or ""
        if before == self._clicked:
            self.action_set()

    def on_key(self, event: events.Key) -> None:
        digit = event.character or ""
        if event.key == "backspace":
            event.stop()
            self._type(self._typed[:-1])
        elif self._lever.kind == "count" and digit.isascii() and digit.isdigit():
            event.stop()
            # a digit must not vanish: a number that is too long is refused as it was typed
            if len(self._typed) < MOST_DIGITS:
                self._type(self._typed + digit)
            else:
                self._complain(f"a number has at most {MOST_DIGITS} digits")

    def action_move(self, rows: int) -> None:
        at = (self._values.highlighted or 0) + rows
        self._values.highlighted = min(max(at, 0), max(len(self._names) - 1, 0))
        self._type("")

    def action_set(self) -> None:
        value = self._value()
        if self._compares:
            self.action_compare()
        elif value is not None:
            self.dismiss(ChosenValue("set", value) if value != self._now else None)

    def action_compare(self) -> None:
        value = self._value()
        if value == self._now:
            self._complain(f"it is {value} now: choose what to compare that with")
        elif value == AUTO:
            self._complain(f"{AUTO} stands for another value: choose that one")
        elif value is not None:
            self.dismiss(ChosenValue("compare", value))

    def action_code(self) -> None:
        """Show the lines of PyTorch that do the same; the chooser stays open below."""
        value = self._value()
        if value is not None:
            action = f"code_of({self._lever.name!r}, {value!r})"
            self.app.call_later(self.app.run_action, action)

    def _value(self) -> str | None:
        """None if the value is not valid, and the dialog shows why."""
        asked = self._typed or (self._names[self._values.highlighted or 0] if self._names else "")
        try:
            return self._lever.canonical(asked)
        except ValueError:
            self._complain(f"{asked} is not valid: {self._lever.valid}")
            return None


def _options(values: Sequence[MeasuredValue], now: str) -> list[Option]:
    names = [plain(one.value) for one in values]
    room = min(max(map(cell_len, names), default=0), MOST_VALUE)
    known = ["now" if one.value == now else one.known for one in values]
    return [
        Option(f"{set_cell_size(value_in(name, room), room)}   {what}", id=one.value)
        for one, name, what in zip(values, names, known, strict=True)
    ]


def _default_b(names: Sequence[str], now: str) -> int:
    """Return the index of the value to compare with the present one: the next, or the last."""
    others = [index for index, name in enumerate(names) if name not in (now, AUTO)]
    after = (index for index in others if now in names[:index])
    return next(after, others[-1] if others else 0)
