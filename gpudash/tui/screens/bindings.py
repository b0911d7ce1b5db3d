"""Textual's bindings from the table of keys."""

from collections.abc import Iterable

from textual.binding import Binding, BindingType

from gpudash.tui.keymap import name_of
from gpudash.tui.keys import Key


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
