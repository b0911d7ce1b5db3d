"""The time range that the charts show, and their common cursor."""

import math
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

SPAN_S = 120.0
"""Length of the time range shown at first."""
_MINUTES = (1, 2, 5, 10, 30, 60, 120, 240, 480, 1440)
SPANS_S = (2.0, 5.0, 15.0, 30.0, *(60.0 * minutes for minutes in _MINUTES))
"""The zoom levels; after the last one comes the whole run."""


class TimeView(msgspec.Struct, frozen=True, kw_only=True):
    """Time range and cursor of all charts, in seconds since the run began.

    A cursor freezes the charts, as they would scroll away under it.
    """

    span_s: float | None = SPAN_S
    """Length of the range; None: the whole run."""
    end_s: float | None = None
    """End of the range; None: it follows the run."""
    cursor_s: float | None = None
    """The moment whose values are shown; None: the newest."""

    @property
    def moment_s(self) -> float | None:
        """The moment whose values are shown: cursor, or end of frozen charts; None: the newest."""
        return self.end_s if self.cursor_s is None else self.cursor_s

    def zoomed(self, direction: int, newest_s: float) -> "TimeView":
        """Return a view of more time (+1) or less (-1); a shorter run is shown whole."""
        spans = [span_s for span_s in SPANS_S if span_s < newest_s]
        now_s = math.inf if self.span_s is None else self.span_s
        if direction > 0:
            span_s = next((one for one in spans if one > now_s), None)
        else:
            span_s = max((one for one in spans if one < now_s), default=SPANS_S[0])
        return _in_sight(replace(self, span_s=span_s))

    def whole(self) -> "TimeView":
        """Return a view of the whole run."""
        return replace(self, span_s=None)

    def frozen(self, newest_s: float) -> "TimeView":
        """Return a view frozen at the present range; if it is frozen, one that follows the run."""
        return replace(self, end_s=newest_s) if self.end_s is None else self.live()

    def live(self) -> "TimeView":
        """Return a view that follows the run, without a cursor."""
        return replace(self, end_s=None, cursor_s=None)

    def between(self, one_s: float, other_s: float) -> "TimeView":
        """Return a view of the time between two moments, at least the shortest span."""
        begin_s, end_s = sorted((max(one_s, 0.0), max(other_s, 0.0)))
        span_s = max(end_s - begin_s, SPANS_S[0])
        return replace(self, span_s=span_s, end_s=end_s, cursor_s=None)

    def at(self, at_s: float, newest_s: float) -> "TimeView":
        """Return a view with the cursor at a moment within the run, scrolled to show it."""
        cursor_s = max(min(at_s, newest_s), 0.0)
        end_s = newest_s if self.end_s is None else self.end_s
        return _in_sight(replace(self, cursor_s=cursor_s, end_s=end_s))

    def moved(self, direction: int, column_s: float, newest_s: float) -> "TimeView":
        """Return a view with the cursor moved by columns; after the newest it follows the run."""
        column = math.ceil(self._present_s(newest_s) / column_s - 1e-9) - 1
        if self.cursor_s is not None:
            column = math.floor(self.cursor_s / column_s + 1e-9)
        if column + direction >= newest_s / column_s:
            return self.live()
        return self.at((column + direction + 0.5) * column_s, newest_s)

    def jumped(self, direction: int, moments: Iterable[float], newest_s: float) -> "TimeView":
        """Return a view with the cursor at the next (+1) or previous (-1) of these moments.

        After the last one it follows the run; before the first one the cursor stays.
        """
        now_s = self._present_s(newest_s)
        ahead = [at_s for at_s in moments if direction * (at_s - now_s) > 0]
        if ahead:
            return self.at(min(ahead, key=lambda at_s: abs(at_s - now_s)), newest_s)
        return self.live() if direction > 0 else self

    def _present_s(self, newest_s: float) -> float:
        """Return the moment of the cursor, or where it would appear."""
        return newest_s if self.moment_s is None else self.moment_s


def _in_sight(view: TimeView) -> TimeView:
    """Return the view scrolled by as little as shows the cursor."""
    if view.span_s is None or view.end_s is None or view.cursor_s is None:
        return view
    end_s = min(max(view.end_s, view.cursor_s), view.cursor_s + view.span_s)
    return replace(view, end_s=end_s)
