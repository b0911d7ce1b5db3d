"""A profile as the screen shows it."""

from pathlib import Path

import msgspec

from gpudash.trace.read import read
from gpudash.trace.summary import Summary, summarise
from gpudash.views.timeline import Timeline, timeline_of


class Shown(msgspec.Struct, frozen=True):
    """A profile as the screen shows it."""

    path: Path
    timeline: Timeline
    summary: Summary | None = None
    """None until it is summed up."""
    before: Summary | None = None
    """Of the profile before it."""


# both take seconds for a trace of a gigabyte: they are not for the event loop


def load(path: Path) -> Shown:
    """Return the timeline of a trace. Raises UsageError with a line for one that is none."""
    return Shown(path, timeline_of(read(path)))


def sum_up(shown: Shown, before: Shown | None) -> Shown:
    """Return it with its summary, and that of the profile before it."""
    return msgspec.structs.replace(
        shown, summary=_summary(shown), before=None if before is None else _summary(before)
    )


def _summary(shown: Shown) -> Summary:
    return shown.summary or summarise(shown.timeline.trace)
