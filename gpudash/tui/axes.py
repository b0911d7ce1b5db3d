"""Cutting series to what a chart can show: bins on the time axis, nice limits, finite values.

Bins lie on multiples of their width, so that a chart scrolls by whole cells and a drawn
column never changes its shape again: no shimmer, and few rows to repaint.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

Point: TypeAlias = tuple[float, float]
Runs: TypeAlias = list[list[Point]]
"""Stretches of neighbouring points; between two of them nothing was measured."""

_NICE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_HEADROOM = 1.05
_NICE_MINUTES = (1, 2, 2.5, 5, 10, 15, 20, 30, 60, 120, 240)
_NICE_SECONDS = (1, 2, 5, 10, 15, 20, 30, 45, *(60 * minutes for minutes in _NICE_MINUTES))
_SLACK_S = 1e-6
"""Ticks are stamped by adding up: one may miss its border by rounding."""
RECENT_TICKS = 10
"""What was measured before these is out of date."""
SHORTEST_S = 30.0
"""The time axis never shows less, so that the first points do not stretch over the chart."""


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """The stretch of time a chart shows, and how wide one bin of it is."""

    begin_s: float
    end_s: float
    bin_s: float

    @property
    def length_s(self) -> float:
        """Seconds from edge to edge."""
        return self.end_s - self.begin_s


def nice_ceiling(value: float) -> float:
    """Return the next round number that is not below `value`; 1 for nothing."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    if power == 0 or not math.isfinite(power * 10):
        return value
    return next((nice * power for nice in _NICE if nice * power >= value), value)


def axis_top(value: float, least: float = 0.0) -> float:
    """Return where an axis ends: at `least`, or above `value` with a little headroom."""
    return least if 0 < least >= value else nice_ceiling(value * _HEADROOM)


def time_range_of(at_s: Sequence[float], tick_s: float, columns: int) -> TimeRange:
    """Return the time_range for these ticks on a chart `columns` points wide."""
    newest = at_s[-1] if at_s else 0.0
    oldest = max(at_s[0] - tick_s, 0.0) if at_s else 0.0
    span = max(newest - oldest, SHORTEST_S)
    bin_s = _bin_width(span / max(columns, 1), tick_s)
    length = bin_s * max(columns, 1)
    if newest <= length:
        return TimeRange(begin_s=0.0, end_s=length, bin_s=bin_s)
    end = math.ceil(newest / bin_s - 1e-9) * bin_s
    return TimeRange(begin_s=end - length, end_s=end, bin_s=bin_s)


def _bin_width(at_least_s: float, tick_s: float) -> float:
    """Return a whole number of ticks, growing in steps of about a quarter."""
    tick = tick_s if tick_s > 0 else 0.5
    ticks = 1
    while ticks * tick < at_least_s - 1e-9:
        ticks += max(1, ticks // 4)
    return ticks * tick


def bins_of(at_s: Sequence[float], time_range: TimeRange) -> list[tuple[int, slice]]:
    """Return (bin, its stretch of the series) for the bins of the time_range that hold a tick.

    A tick is named by its end: the one that ends on a border belongs to the bin before it.
    """
    bins = []
    begin = bisect_right(at_s, time_range.begin_s + _SLACK_S)
    until = bisect_right(at_s, time_range.end_s + _SLACK_S)
    while begin < until:
        number = math.ceil((at_s[begin] - _SLACK_S) / time_range.bin_s) - 1
        end = bisect_right(at_s, (number + 1) * time_range.bin_s + _SLACK_S, begin + 1, until)
        bins.append((number, slice(begin, end)))
        begin = end
    return bins


def cut(
    values: Sequence[float | None], bins: Sequence[tuple[int, slice]], time_range: TimeRange
) -> Runs:
    """Return one mean per bin as runs of points, broken where a whole bin is missing.

    None, nan and infinity never get out: they would end the process inside plotext.
    """
    runs: Runs = []
    last = None
    for number, stretch in bins:
        mean = _mean(values[stretch])
        if mean is None:
            continue
        if last is None or number != last + 1:
            runs.append([])
        runs[-1].append(((number + 0.5) * time_range.bin_s, mean))
        last = number
    return runs


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of what is finite; None for nothing, and for a sum beyond a float."""
    known = [value for value in values if value is not None]
    total = sum(known)
    if not math.isfinite(total):
        known = [value for value in known if math.isfinite(value)]
        total = sum(known)
    return total / len(known) if known and math.isfinite(total) else None


def highest(runs: Runs) -> float:
    """Return the largest value; 0 for no point."""
    return max((y for run in runs for _, y in run), default=0.0)


def usual_highest(runs: Runs) -> float:
    """Return the largest value, rare ones far above the others left out.

    A first step takes ten times as long as the rest and would flatten them for minutes.
    """
    values = sorted(y for run in runs for _, y in run)
    if len(values) < 10:
        return values[-1] if values else 0.0
    usual = values[int(0.9 * len(values)) - 1]
    return values[-1] if values[-1] <= 3 * usual else 1.5 * usual


def latest(values: Sequence[float | None]) -> float | None:
    """Return what was measured last, unless it is out of date.

    The newest ticks may hold no end of a slow step.
    """
    recent = reversed(values[-RECENT_TICKS:])
    return next((value for value in recent if value is not None and math.isfinite(value)), None)


def time_ticks(time_range: TimeRange, columns: int, label_width: int = 8) -> list[float]:
    """Return round moments inside the time_range, far enough apart for their labels."""
    room = max(columns // label_width, 1)
    apart = next(
        (float(s) for s in _NICE_SECONDS if time_range.length_s / s <= room),
        float(_NICE_SECONDS[-1]),
    )
    if time_range.length_s / apart > room:  # days: any whole number of the longest step
        apart *= math.ceil(time_range.length_s / apart / room)
    first = math.ceil(time_range.begin_s / apart - 1e-9)
    last = math.floor(time_range.end_s / apart + 1e-9)
    return [index * apart for index in range(first, last + 1)]
