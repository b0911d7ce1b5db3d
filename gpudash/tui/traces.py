"""Where the traces of profiles are kept."""

from datetime import datetime
from pathlib import Path

from platformdirs import user_state_path

KEPT = 5
"""Traces in our own folder, the newest: one may have many megabytes."""


def folder() -> Path:
    """Return where traces go that belong to no recording."""
    return user_state_path("gpudash") / "traces"


def new_path(workload: str, recording: str | None, now: datetime) -> Path:
    """Return where the next trace goes: beside the recording, or into our folder, thinned out.

    Raises OSError where there is no such place.
    """
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
