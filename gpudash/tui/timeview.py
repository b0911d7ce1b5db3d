"""Which stretch of the run the charts show, and where their common cursor stands."""

import msgspec

SPAN_S = 120.0
"""Shown at first."""


class TimeView(msgspec.Struct, frozen=True, kw_only=True):
    """What all charts of the screen have in common. Seconds since the run began."""

    span_s: float | None = SPAN_S
    """How much time is shown; None: the whole run."""
    end_s: float | None = None
    """Where it ends; None: it follows the run."""
    cursor_s: float | None = None
    """The moment whose values are shown; None: the newest."""
