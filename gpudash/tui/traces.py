"""The files of profiles' traces."""

from datetime import datetime
from pathlib import Path

from platformdirs import user_state_path

KEPT = 5
"""Number of newest traces kept in gpudash's own folder: one may have many megabytes."""


def folder() -> Path:
    """Return the folder for traces that belong to no recording."""
    return user_state_path("gpudash") / "traces"


def new_path(workload: str, recording: str | None, now: datetime) -> Path:
    """Return the path of the next trace: beside the recording, or else in `folder()`.

    Old traces in the folder are removed. Raises OSError if the folder cannot be made.
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
