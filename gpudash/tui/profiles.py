"""Loading and summarising a profile for the screen."""

from pathlib import Path

import msgspec

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
    """Return the timeline of a trace. Raises UsageError for a file that is no trace."""
    return ShownProfile(path, timeline_of(read(path)))


def sum_up(shown: ShownProfile, before: ShownProfile | None) -> ShownProfile:
    """Return the profile with its summary, and with that of the previous profile."""
    return msgspec.structs.replace(
        shown, summary=_summary(shown), before=None if before is None else _summary(before)
    )


def _summary(shown: ShownProfile) -> Summary:
    return shown.summary or summarise(shown.timeline.trace)
