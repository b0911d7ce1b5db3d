"""Help: every key, and how to read the screen."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from gpudash.tui.keys import Key
from gpudash.tui.screens.dialog import Dialog, text

READING = """\
▸ marks the live row; `ratio` is samples/s over the first row's.
`–` means not measured. A vertical ┊ marks a lever change.
An axis that ends in ↑ leaves out rare, much higher values.
`off → on …` is asked for and not active yet.
Steps count when the device has finished them.
GPU utilisation only says that some kernel ran: it may
read 100 % while most of the GPU idles."""


def keys_text(keys: Iterable[Key]) -> str:
    """Return the list of keys, one a line."""
    return "\n".join(f"{key.shown:>7}  {key.help}" for key in keys)


class Help(Dialog[None]):
    """Lists the keys; any of Escape, `?`, `q` and Enter leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter", "dismiss(None)", "close", show=False)
    ]

    def __init__(self, keys: Iterable[Key]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Yield the keys, then the reading aid."""
        with VerticalScroll(classes="dialog help"):
            yield text("gpudash · keys", classes="dialog-title")
            yield text(keys_text(self._keys), classes="help-keys")
            yield text(READING, classes="dialog-hint")
            yield text("esc closes · every action is also in the palette", classes="dialog-hint")
