"""What the user prefers: configured, or as in the last run, which is kept if there is a place."""

from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Literal, TypeAlias, get_args

import msgspec
from platformdirs import user_state_path

from gpudash import own_file

Tab: TypeAlias = Literal["history", "ab", "ranks", "profile", "output", "log"]
"""A tab of the pane."""


class Appearance(msgspec.Struct, frozen=True, kw_only=True):
    """The user's configuration, which overrides what was saved. None: as in the last run."""

    theme: str | None = None
    pane: Tab | None = None


class Preferences(Appearance, frozen=True, kw_only=True):
    """The user's last choices, and how long starts took."""

    starts_s: dict[str, float] = {}
    """Time of the last start up to the first step, by workload and requested device."""


def choices(setting: str) -> Sequence[str]:
    """Return the valid values; `setting` is `theme` or `pane`."""
    if setting == "pane":
        return get_args(Tab)
    from textual.theme import BUILTIN_THEMES  # noqa: PLC0415  # `gpudash info` needs no Textual

    return sorted(BUILTIN_THEMES)


def load() -> Preferences:
    """Return the saved preferences; the defaults if there are none or they cannot be read."""
    return own_file.read(place(), Preferences())


def save(preferences: Preferences) -> Thread:
    """Save the preferences on a thread, and return it: an unreachable home may block for long."""
    saving = Thread(target=lambda: own_file.write(place(), preferences), daemon=True)
    saving.start()
    return saving


def place() -> Path:
    return user_state_path("gpudash") / "preferences.json"
