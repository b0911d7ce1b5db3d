"""The keys of a screen: Textual's bindings from their table, and the help that lists them."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from gpudash.tui.keys import GROUPS, Key, name_of
from gpudash.tui.screens.dialog import Dialog, framed, text

READING = """\
▸ marks the live row; × is its samples/s over the first row's,
  ~ that both rows vary too much, or are too short, to say so.
`–` means not measured. ┊ marks a lever change, │ the cursor.
An axis that ends in ↑ leaves out rare, much higher values.
`off → on …` is asked for and not active yet.
Steps count when the device has finished them.
GPU busy only says that some kernel ran: it may read 100 %
while most of the GPU idles."""


def keys_text(keys: Sequence[Key], panel: str = "") -> str:
    """Return the list of keys, one per line, in groups; the panel's keys come first."""
    own = [key for key in keys if panel in key.panels]
    groups = {"Here": own} if own else {}
    for group, title in GROUPS.items():
        groups[title] = [key for key in keys if key.group == group and key not in own]
    return "\n\n".join(
        "\n".join((title, *(f"{key.shown:>7}  {key.help}" for key in listed)))
        for title, listed in groups.items()
        if listed
    )


class Help(Dialog[None]):
    """Lists the keys; Escape, `?`, `q` and Enter close it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,q,enter", "dismiss(None)", "close", show=False)
    ]

    def __init__(self, keys: Sequence[Key], panel: str = "", reading: str = READING) -> None:
        """Show the keys, those of `panel` first, and the explanation `reading` of the screen."""
        content = text(keys_text(keys, panel)), text(reading, classes="dialog-hint")
        hint = "esc closes · every action is also in the palette"
        super().__init__(framed("gpudash · keys", *content, hint=hint, wide=True))


def bindings(keys: Iterable[Key], *, named: bool = False) -> list[BindingType]:
    """Return the bindings of these keys; the user's keymap can change `named` ones."""
    return [
        Binding(
            key.keys,
            key.action if key.action.startswith("screen.") else f"app.{key.action}",
            key.help,
            show=False,
            id=name_of(key) if named else None,
        )
        for key in keys
        if key.action != "leave_now"
    ]
