"""What is configured of the dashboard: it comes before what was remembered."""

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec
from textual.theme import BUILTIN_THEMES

from gpudash.tui.preferences import Tab

VALID = {"theme": sorted(BUILTIN_THEMES), "pane": get_args(Tab)}


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The user's choices. None = as it was left the last time."""

    theme: str | None = None
    pane: Tab | None = None
    keys: Mapping[str, Sequence[str]] = {}
    """Action, as `keymap` names it → its keys instead of the usual ones."""
