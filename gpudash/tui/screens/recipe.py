"""The lines of PyTorch that do in one's own script what a lever does here."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from gpudash.tui.screens.dialog import Dialog, plain_lines, text
from workloads.levers import Lever
from workloads.take_home import recipe


class TakeHome(Dialog[None]):
    """Shows the lines for a value; `y` copies them, and the arrows go to the other values."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,c", "dismiss(None)", "close", show=False),
        Binding("y", "copy", "copy", show=False),
        Binding("right,l", "move(1)", "next value", show=False, priority=True),
        Binding("left,h", "move(-1)", "value before", show=False, priority=True),
    ]

    def __init__(self, lever: Lever, value: str) -> None:
        super().__init__()
        self._lever, self._value = lever, value

    def compose(self) -> ComposeResult:
        """Yield title, lines and hint."""
        others = "" if len(self._lever.values) < 2 else "←→ other values · "
        with VerticalScroll(classes="dialog told"):
            yield text(self._title, classes="dialog-title")
            yield text(self._content, classes="help-keys")
            yield text(f"y copies · {others}esc closes", classes="dialog-hint")

    @property
    def _title(self) -> str:
        return f"{self._lever.name}={self._value}"

    @property
    def _content(self) -> str:
        one = recipe(self._lever, self._value)
        if not one.code:
            return one.note
        return "\n".join((one.note, "", *one.marked, "", one.legend))

    def action_move(self, direction: int) -> None:
        """Show the next value, or the one before."""
        if not self._lever.values:
            return
        self._value = self._lever.step(self._value, direction)
        self.query_one(".dialog-title", Static).update(plain_lines(self._title))
        self.query_one(".help-keys", Static).update(plain_lines(self._content))

    def action_copy(self) -> None:
        """Copy the script, without the marks."""
        code = recipe(self._lever, self._value).code
        if code:
            self.app.copy_to_clipboard(code)
        copied = f"copied: the lines for {self._title}"
        self.app.notify(copied if code else "there is nothing to copy", markup=False)
