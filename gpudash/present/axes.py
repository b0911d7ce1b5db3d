"""The axes of all charts: the time shown with its cursor, its bins, round limits, finite values.

All charts of a screen show the same time range. Bins begin at multiples of their width, so that a
chart scrolls by whole cells and a drawn column never changes: few rows are repainted.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from typing import TypeAlias, cast

import msgspec
from msgspec.structs import replace

from gpudash.format import is_measured
from gpudash.ranks.recent import NOW_S, NOW_STEPS
from gpudash.snapshot import Series
from gpudash.statistics import mean

Point: TypeAlias = tuple[float, float]
Runs: TypeAlias = list[list[Point]]
"""Runs of neighbouring points; between two runs nothing was measured."""

_NICE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_HEADROOM = 1.05
_NICE_MINUTES = (1, 2, 2.5, 5, 10, 15, 20, 30, 60, 120, 240)
_NICE_SECONDS = (1, 2, 5, 10, 15, 20, 30, 45, *(60 * minutes for minutes in _NICE_MINUTES))
_SLACK_S = 1e-6
"""Tolerance for ticks, whose times are sums and may miss a border by rounding."""
RECENT_TICKS = 10
"""A value older than these ticks is out of date."""
LABEL_WIDTH = 8
"""Columns of a label on the time axis, with its distance from the next."""
_GROWTH = 1.15
SHORTEST_S = 15.0
"""Shortest time axis, so that the first points do not stretch over the chart."""
SPAN_S = 120.0
"""Length to which the time range grows by itself. It then leaves out the start, before any step."""
_MINUTES = (1, 2, 5, 10, 30, 60, 120, 240, 480, 1440)
SPANS_S = (2.0, 5.0, 15.0, 30.0, *(60.0 * minutes for minutes in _MINUTES))
"""The zoom levels; after the last one comes the whole run."""


# ── the time that is shown ────────────────────────────────────────────────────────────────


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
        """Show more time (+1) or less (-1); a shorter run is shown whole."""
        spans = [span_s for span_s in SPANS_S if span_s < newest_s]
        now_s = math.inf if self.span_s is None else self.span_s
        if direction > 0:
            span_s = next((one for one in spans if one > now_s), None)
        else:
            span_s = max((one for one in spans if one < now_s), default=SPANS_S[0])
        return _in_sight(replace(self, span_s=span_s))

    def whole(self) -> "TimeView":
        return replace(self, span_s=None)

    def frozen(self, newest_s: float) -> "TimeView":
        """Freeze the present range; a frozen view follows the run again."""
        return replace(self, end_s=newest_s) if self.end_s is None else self.live()

    def live(self) -> "TimeView":
        return replace(self, end_s=None, cursor_s=None)

    def between(self, one_s: float, other_s: float) -> "TimeView":
        """Show at least the shortest span."""
        begin_s, end_s = sorted((max(one_s, 0.0), max(other_s, 0.0)))
        span_s = max(end_s - begin_s, SPANS_S[0])
        return replace(self, span_s=span_s, end_s=end_s, cursor_s=None)

    def at(self, at_s: float, newest_s: float) -> "TimeView":
        cursor_s = max(min(at_s, newest_s), 0.0)
        end_s = newest_s if self.end_s is None else self.end_s
        return _in_sight(replace(self, cursor_s=cursor_s, end_s=end_s))

    def moved(self, direction: int, column_s: float, newest_s: float) -> "TimeView":
        """After the newest moment the view follows the run."""
        column = math.ceil(self._present_s(newest_s) / column_s - 1e-9) - 1
        if self.cursor_s is not None:
            column = math.floor(self.cursor_s / column_s + 1e-9)
        if column + direction >= newest_s / column_s:
            return self.live()
        return self.at((column + direction + 0.5) * column_s, newest_s)

    def jumped(self, direction: int, moments: Iterable[float], newest_s: float) -> "TimeView":
        """After the last moment the view follows the run; before the first one the cursor stays."""
        now_s = self._present_s(newest_s)
        ahead = [at_s for at_s in moments if direction * (at_s - now_s) > 0]
        if ahead:
            return self.at(min(ahead, key=lambda at_s: abs(at_s - now_s)), newest_s)
        return self.live() if direction > 0 else self

    def _present_s(self, newest_s: float) -> float:
        return newest_s if self.moment_s is None else self.moment_s


def _in_sight(view: TimeView) -> TimeView:
    if view.span_s is None or view.end_s is None or view.cursor_s is None:
        return view
    end_s = min(max(view.end_s, view.cursor_s), view.cursor_s + view.span_s)
    return replace(view, end_s=end_s)


# ── the axes ──────────────────────────────────────────────────────────────────────────────


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """The time range of a chart, and its number of columns."""

    begin_s: float
    end_s: float
    columns: int

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s

    @property
    def bin_s(self) -> float:
        return self.length_s / self.columns

    @property
    def first(self) -> int:
        """The number of the first column; column n of a run begins at n times its width."""
        return math.ceil(self.end_s / self.bin_s - _SLACK_S) - self.columns

    def column_of(self, at_s: float) -> int:
        column = math.floor(at_s / self.bin_s + _SLACK_S) - self.first
        return min(max(column, 0), self.columns - 1)

    def middle_of(self, column: int) -> float:
        return (self.first + column + 0.5) * self.bin_s

    def moment_in(self, column: int) -> float | None:
        """None outside of the chart."""
        return self.middle_of(column) if 0 <= column < self.columns else None

    def holds(self, at_s: float) -> bool:
        return self.begin_s <= at_s <= self.end_s


def nice_ceiling(value: float) -> float:
    """Return the next round number that is not below `value`; 1 unless it is above 0."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    if power == 0 or not math.isfinite(power * 10):
        return value
    return next((nice * power for nice in _NICE if nice * power >= value), value)


def axis_top(value: float) -> float:
    """Return the end of an axis: a round number above `value`, with a little headroom."""
    return nice_ceiling(value * _HEADROOM)


def range_of(series: Series, columns: int, view: TimeView) -> TimeRange:
    """End with the newest tick: a young run grows from the right border, which says `live`."""
    at_s = series.at_s
    end_s = at_s[-1] if at_s else 0.0
    if view.end_s is not None and view.end_s < end_s:
        end_s = at_s[bisect_left(at_s, view.end_s - _SLACK_S)]  # no tick is cut
    begin_s = max(_begin_of(at_s), 0.0)
    if view.span_s == SPAN_S:
        seen_s = end_s if view.cursor_s is None else view.cursor_s
        begin_s = _start_left_out(series, begin_s, seen_s)
    span_s = _room_for(end_s - begin_s)
    if view.span_s is not None:
        span_s = min(view.span_s, span_s)
    return TimeRange(begin_s=end_s - span_s, end_s=end_s, columns=max(columns, 1))


def _start_left_out(series: Series, begin_s: float, until_s: float) -> float:
    """Return when the first step began, if that was before `until_s`; else when the run began."""
    steps_ms = series.of("step_ms")
    first = next((tick for tick, ms in enumerate(steps_ms) if ms is not None), 0)
    return series.at_s[first - 1] if first and series.at_s[first - 1] < until_s else begin_s


def _room_for(run_s: float) -> float:
    """Let the length grow in steps of 15 %, between which charts only scroll."""
    steps = math.ceil(math.log(max(run_s, SHORTEST_S) / SHORTEST_S, _GROWTH) - _SLACK_S)
    return SHORTEST_S * _GROWTH**steps


def bins_of(at_s: Sequence[float], time_range: TimeRange) -> list[tuple[int, slice]]:
    """Give a tick that ends on a border to the bin before; a bin without an end shows the next."""
    bin_s, first = time_range.bin_s, time_range.first
    until = min(bisect_left(at_s, time_range.end_s - _SLACK_S) + 1, len(at_s))
    began_s = _begin_of(at_s)
    begin = bisect_right(at_s, time_range.begin_s + _SLACK_S)
    bins = []
    for column in range(time_range.columns):
        if begin >= until:
            break
        left_s = (first + column) * bin_s
        end = bisect_right(at_s, left_s + bin_s + _SLACK_S, begin, until)
        if end > begin or left_s > began_s - _SLACK_S:
            bins.append((column, slice(begin, max(end, begin + 1))))
        begin = end
    return bins


def _begin_of(at_s: Sequence[float]) -> float:
    """Take the first tick to be as long as the second."""
    return 2 * at_s[0] - at_s[1] if len(at_s) > 1 else sum(at_s)


def cut(
    values: Sequence[float | None],
    bins: Sequence[tuple[int, slice]],
    time_range: TimeRange,
    at_s: Sequence[float] = (),
) -> Runs:
    """Split runs where a whole bin is missing; with `at_s`, ticks weigh by their length."""
    runs: Runs = []
    last = None
    for column, stretch in bins:
        mean = _mean(values[stretch], _lengths(at_s, stretch))
        if mean is None:
            continue
        if last is None or column != last + 1:
            runs.append([])
        runs[-1].append((time_range.middle_of(column), mean))
        last = column
    return runs


def _lengths(at_s: Sequence[float], stretch: slice) -> list[float]:
    """Return the lengths of these ticks, which never increase; empty if all are equal."""
    ends = at_s[max(stretch.start - 1, 0) : stretch.stop]
    if len(ends) < 3 or ends[1] - ends[0] <= ends[-1] - ends[-2] + _SLACK_S:
        return []
    lengths = [end - begin for begin, end in pairwise(ends)]
    return lengths if stretch.start else [lengths[0], *lengths]


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """None without a finite value, or if the sum overflows."""
    known = [value for value in values if value is not None]
    total = sum(known)
    if not weights and math.isfinite(total):  # the usual case, several times as fast
        return total / len(known) if known else None
    found = mean(values, weights or repeat(1.0))
    return found if is_measured(found) else None


def means(
    values: Sequence[float | None], at_s: Sequence[float], stretches: Sequence[slice]
) -> list[float | None]:
    """Weigh ticks by their length."""
    if not values:
        return [None] * len(stretches)
    if None not in values and not _lengths(at_s, slice(0, len(at_s))):
        known = cast("Sequence[float]", values)  # the usual case, several times as fast
        quick = [sum(ticks) / len(ticks) for ticks in map(known.__getitem__, stretches)]
        if math.isfinite(sum(quick)):
            return [*quick]
    return [_mean(values[stretch], _lengths(at_s, stretch)) for stretch in stretches]


def highest(runs: Runs) -> float:
    """0 without points."""
    return max((y for run in runs for _, y in run), default=0.0)


def latest(series: Series, name: str, changed_s: float = 0.0) -> float | None:
    """Return a step metric's mean over at least `NOW_S` and `NOW_STEPS`, all after `changed_s`.

    None if the last value is out of date. The newest ticks may contain no end of a step.
    """
    values, steps, at_s = series.of(name), series.of("steps_per_s"), series.at_s
    recent = range(len(values) - 1, max(len(values) - RECENT_TICKS, 0) - 1, -1)
    last = next((tick for tick in recent if is_measured(values[tick])), None)
    if last is None:
        return None

    def tick_after(began_s: float) -> int:
        whole = began_s > _begin_of(at_s) + _SLACK_S  # else it would be the previous tick
        return min(bisect_left(at_s, began_s - _SLACK_S) + whole, last)

    first, least = tick_after(max(at_s[last] - NOW_S, changed_s)), tick_after(changed_s)
    while steps and first > least and _steps_in(steps, at_s, slice(first, last + 1)) < NOW_STEPS:
        first -= 1
    weights = [one or 0.0 for one in steps[first : last + 1]]
    return _mean(values[first : last + 1], weights if any(weights) else ())


def _steps_in(steps_per_s: Sequence[float | None], at_s: Sequence[float], stretch: slice) -> float:
    ends = at_s[stretch.start - 1 : stretch.stop]
    lengths = [end - begin for begin, end in pairwise(ends)]
    return sum((rate or 0.0) * s for rate, s in zip(steps_per_s[stretch], lengths, strict=True))


def value_at(series: Series, name: str, at_s: float) -> float | None:
    values = series.of(name)
    index = bisect_left(series.at_s, at_s)
    return values[index] if index < len(values) else None


def time_ticks(time_range: TimeRange) -> list[float]:
    room = max(time_range.columns // LABEL_WIDTH, 1)
    apart = next(
        (float(s) for s in _NICE_SECONDS if time_range.length_s / s <= room),
        float(_NICE_SECONDS[-1]),
    )
    apart *= math.ceil(time_range.length_s / apart / room)  # days: some of the longest step
    first = max(math.ceil(time_range.begin_s / apart - 1e-9), 0)
    last = math.floor(time_range.end_s / apart + 1e-9)
    return [index * apart for index in range(first, last + 1)]
