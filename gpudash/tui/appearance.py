"""The dashboard's settings from the configuration, which override saved preferences."""

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec
from textual.theme import BUILTIN_THEMES

from gpudash.tui.preferences import Tab

VALID = {"theme": sorted(BUILTIN_THEMES), "pane": get_args(Tab)}


class Appearance(msgspec.Struct, frozen=True, kw_only=True):
    """The user's settings. None: as in the last run."""

    theme: str | None = None
    pane: Tab | None = None
    keys: Mapping[str, Sequence[str]] = {}
    """Name of an action in `keymap` → its keys, in place of the usual ones."""
