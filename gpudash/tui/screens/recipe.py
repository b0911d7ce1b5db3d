"""The dialog with the lines of PyTorch that do in the user's script what a lever does here."""

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from gpudash.present.own_line import OwnLine, unknown
from gpudash.protocol.training import Lever
from gpudash.tui.screens.dialog import Dialog, copy, ways
from workloads.take_home import recipe

INKS = {"+": "$text-success", "-": "$text-muted"}
"""Style of a line by its mark."""


class TakeHome(Dialog[None]):
    """Shows the lines for a value; `y` copies them, and the arrows go to the other values."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q,c", "dismiss(None)", "close", show=False),
        Binding("y", "copy", "copy", show=False),
        Binding("right,l", "move(1)", "next value", show=False, priority=True),
        Binding("left,h", "move(-1)", "value before", show=False, priority=True),
    ]

    def __init__(
        self, lever: Lever, value: str, own_line: Callable[[str], OwnLine | None] = unknown
    ) -> None:
        # the head has the keys, as it stays visible above a long script
        self._head, self._lines = Static(classes="dialog-title"), Static()
        super().__init__(VerticalScroll(self._head, self._lines, classes="dialog wide"))
        self._lever, self._own_line = lever, own_line
        self._show(value)

    @property
    def _setting(self) -> str:
        return f"{self._lever.name}={self._value}"

    def _show(self, value: str) -> None:
        self._value = value
        others = {"← value before": "move(-1)", "→ next value": "move(1)"}
        keys = {"y copies": "copy", **(others if self._lever.values else {})}
        keys["esc closes"] = "dismiss(None)"
        self._head.update(Content(f"{self._setting} · ") + ways(keys))
        one = recipe(self._lever.name, value)
        lines = [one.note, "", *one.marked, "", one.legend] if one.code else [one.note]
        if (own := self._own_line(value)) is not None:
            changes = value != self._lever.default and own.after != own.before
            marked = (f"-{own.before}", f"+{own.after}") if changes else (f" {own.before}",)
            lines[:0] = [f"{own.where} in your script:", *marked, ""]
        styled = (Content.styled(line, INKS.get(line[:1], "")) for line in lines)
        self._lines.update(Content("\n").join(styled))

    def action_move(self, direction: int) -> None:
        if self._lever.values:
            self._show(self._lever.step(self._value, direction))

    def action_copy(self) -> None:
        code = recipe(self._lever.name, self._value).code
        copy(self.app, code, f"copied the lines for {self._setting}")
