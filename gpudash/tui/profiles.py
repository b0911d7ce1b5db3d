"""The files of profiles' traces; loading and summarising them for the screen."""

from datetime import datetime
from pathlib import Path

import msgspec
from platformdirs import user_state_path

from gpudash.trace.accounting import summarise
from gpudash.trace.read import read
from gpudash.trace.summary import Summary
from gpudash.views.timeline import Timeline, timeline_of


class ShownProfile(msgspec.Struct, frozen=True):
    """A profile, with its timeline and summary for the screen."""

    path: Path
    timeline: Timeline
    summary: Summary | None = None
    """None until it is computed."""
    before: Summary | None = None
    """Summary of the previous profile."""


# both take seconds for a trace of a gigabyte: call them outside the event loop


def load(path: Path) -> ShownProfile:
    """Raise UsageError for a file that is no trace."""
    return ShownProfile(path, timeline_of(read(path)))


def sum_up(shown: ShownProfile, before: ShownProfile | None) -> ShownProfile:
    return msgspec.structs.replace(
        shown, summary=_summary(shown), before=None if before is None else _summary(before)
    )


def _summary(shown: ShownProfile) -> Summary:
    return shown.summary or summarise(shown.timeline.trace)


KEPT = 5
"""Number of newest traces kept in gpudash's own folder: one may have many megabytes."""


def folder() -> Path:
    """Return the folder for traces that belong to no recording."""
    return user_state_path("gpudash") / "traces"


def new_path(workload: str, recording: str | None, now: datetime) -> Path:
    """Without a recording, remove old traces in `folder()`; raise OSError if it cannot be made."""
    if recording is not None:
        beside = Path(recording).expanduser().absolute()
        return beside.with_name(f"{beside.stem}-profile-{now:%H%M%S}.json")
    place = folder()
    place.mkdir(parents=True, exist_ok=True)
    for old in sorted(place.glob("*.json"), key=_age)[: -(KEPT - 1)]:
        old.unlink(missing_ok=True)
    return place / f"{workload}-{now:%Y%m%d-%H%M%S}.json"


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another dashboard has just removed it
        return 0.0
