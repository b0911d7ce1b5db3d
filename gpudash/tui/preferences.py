"""What the dashboard remembers from one run to the next. Without a place for it, nothing."""

import contextlib
import os
from pathlib import Path
from threading import Thread
from typing import Literal, TypeAlias

import msgspec
from platformdirs import user_state_path

from gpudash.errors import UNDECODABLE

Tab: TypeAlias = Literal["results", "ab", "ranks", "timeline", "output", "log"]
"""Of the pane."""


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """What the user has chosen, and how long starting took."""

    theme: str | None = None
    pane: Tab | None = None
    starts_s: dict[str, float] = {}
    """By workload and device as asked for, from the start to the first step, the last time."""


def load() -> Preferences:
    """Return what is remembered: the defaults where nothing is, or where it cannot be read."""
    try:
        return msgspec.json.decode(place().read_bytes(), type=Preferences)
    except (OSError, *UNDECODABLE):
        return Preferences()


def save(preferences: Preferences) -> Thread:
    """Remember these in a thread, which is returned: a home that is gone would block for long."""
    saving = Thread(target=_save, args=(preferences,), daemon=True)
    saving.start()
    return saving


def place() -> Path:
    """Return the file's path."""
    return user_state_path("gpudash") / "preferences.json"


def _save(preferences: Preferences) -> None:
    with contextlib.suppress(OSError):
        path = place()
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        try:
            written.write_bytes(msgspec.json.encode(preferences))
            written.replace(path)  # whole or not at all, also with two dashboards
        finally:
            written.unlink(missing_ok=True)
