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
    summary: Summary
    before: Summary | None = None
    """Of the profile before it."""


def load(path: Path, before: Summary | None = None) -> Shown:
    """Return what is shown of a trace. Raises UsageError with a line for one that is none.

    It takes seconds for a trace of a gigabyte: not for the event loop.
    """
    trace = read(path)
    return Shown(path, timeline_of(trace), summarise(trace), before)
