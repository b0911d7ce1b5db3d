"""What is configured of the dashboard: it comes before what was remembered."""

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec
from textual.theme import BUILTIN_THEMES

from gpudash.errors import UsageError
from gpudash.tui.preferences import Tab
from workloads.nearest import not_valid


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The user's choices. None = as it was left the last time."""

    theme: str | None = None
    pane: Tab | None = None
    keys: Mapping[str, Sequence[str]] = {}
    """Action, as `keymap` names it → its keys instead of the usual ones."""


def theme_named(text: str) -> str:
    """Return the theme of this name. Raises UsageError."""
    return _one_of("theme", text, sorted(BUILTIN_THEMES))


def pane_named(text: str) -> str:
    """Return the pane's tab of this name. Raises UsageError."""
    return _one_of("pane", text, get_args(Tab))


def _one_of(key: str, text: str, valid: Sequence[str]) -> str:
    if text not in valid:
        raise UsageError(not_valid(key, text, valid))
    return text
