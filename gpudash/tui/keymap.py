"""The names of the keys' actions, and the user's keymap."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gpudash.errors import UsageError
from gpudash.tui.keys import KEYS, PLAYER_KEYS, REPLAY_KEYS, SHOWN, Key, replaying
from workloads.nearest import did_you_mean

NAMES = {
    "batch(1)": "batch_up",
    "batch(-1)": "batch_down",
    "screen.range(-1)": "range_shorter",
    "screen.range(1)": "range_longer",
    "screen.to_marker(-1)": "marker_before",
    "screen.to_marker(1)": "marker_after",
    "screen.panel(1)": "panel_after",
    "screen.panel(-1)": "panel_before",
    **{f"screen.panel_number({number})": f"panel_{number}" for number in range(1, 10)},
    "screen.move(0, 1)": "move_down",
    "screen.move(0, -1)": "move_up",
    "screen.move(1, 0)": "move_right",
    "screen.move(-1, 0)": "move_left",
    "screen.scroll(-1)": "scroll_up",
    "screen.scroll(1)": "scroll_down",
    "screen.seek(-5)": "seek_back",
    "screen.seek(5)": "seek_forward",
    "leave": "quit",
    "screen.speed(-1)": "slower",
    "screen.speed(1)": "faster",
    "screen.seek_marker(-1)": "seek_marker_before",
    "screen.seek_marker(1)": "seek_marker_after",
}
"""Configured names of actions that have arguments or another name in the code."""
FIXED = ("leave_now",)
"""Actions whose keys cannot be changed: they always end the dashboard."""
ALWAYS = {"ctrl+q": "quit"}
"""Keys that the app binds in addition."""
MODIFIERS = {"ctrl", "shift", "alt"}


def name_of(key: Key) -> str:
    """Return the name by which a key's action is configured and bound."""
    return NAMES.get(key.action, key.action.removeprefix("screen."))


ACTIONS = tuple(
    dict.fromkeys(name_of(key) for key in (*KEYS, *PLAYER_KEYS) if key.action not in FIXED)
)


def key_named(text: str) -> str:
    """Return Textual's name of a key, from that name or from its label. Raises UsageError."""
    from textual.keys import (  # noqa: PLC0415  # only if keys are configured
        Keys,
        _character_to_key,
        key_to_character,
    )

    by_label = {shown: name for name, shown in SHOWN.items()}
    *modifiers, last = [text] if len(text) == 1 else text.split("+")
    name = by_label.get(last) or (_character_to_key(last) if len(last) == 1 else last)
    names = {key.value for key in Keys} | {*by_label.values()}
    known = len(last) == 1 or name in names or key_to_character(name) is not None
    if not (last and last.isprintable() and known and MODIFIERS.issuperset(modifiers)):
        raise UsageError(
            f"key {text!r} is not valid; valid: a character, or a name such as f5, space or ctrl+r"
            f"{did_you_mean(text, names)}"
        )
    return "+".join((*modifiers, name))


def keys_of(keymap: Mapping[str, Sequence[str]], *, replay: bool) -> tuple[Key, ...]:
    """Return the keys of the dashboard, or of a replay, under a keymap without clashes."""
    if not replay:
        return remapped(KEYS, keymap)
    bound = {name_of(key) for key in REPLAY_KEYS}
    keys = replaying(remapped(PLAYER_KEYS, keymap), remapped(KEYS, keymap))
    return tuple(key for key in keys if name_of(key) in bound)


def remapped(keys: Iterable[Key], keymap: Mapping[str, Sequence[str]]) -> tuple[Key, ...]:
    """Return the keys, with the keymap's keys for their actions."""
    return tuple(
        msgspec.structs.replace(key, keys=",".join(keymap.get(name_of(key), key.keys.split(","))))
        for key in keys
    )


def clash(keymap: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """Return an action that shares a key with another one, and a sentence; None if there is none.

    Of two actions in the keymap it is the later one.
    """
    order = {action: number for number, action in enumerate(keymap, 1)}
    for table in (KEYS, PLAYER_KEYS):
        actions = dict(ALWAYS)
        for key in sorted(remapped(table, keymap), key=lambda key: order.get(name_of(key), 0)):
            action = name_of(key)
            for name in key.keys.split(","):
                if (other := actions.setdefault(name, action)) != action:
                    return action, (
                        f"key {SHOWN.get(name, name)} is {other}'s; "
                        f"valid: another key, or another one for {other} too"
                    )
    return None
