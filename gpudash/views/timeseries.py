"""Keep the whole run in ticks, for charts: recent ticks are short, older ones are merged.

If there are too many merged ticks, neighbours merge in pairs. A step counts in every tick it
overlaps, by the share of its duration in that tick. So a step of three seconds draws a level line,
and rates times tick lengths add up to the steps trained.
"""

from collections.abc import Mapping
from itertools import zip_longest
from math import floor

from gpudash.metrics import METRICS
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Step
from gpudash.ranks.recent import NOW_S, NOW_STEPS
from gpudash.snapshot import RecentMeans, Series, Values
from gpudash.statistics import Means
from gpudash.window import Window

TICK_S = 0.5
CAPACITY = 480
"""Most ticks that may still change: four minutes. One takes as much memory as five merged ones."""
KEPT = 360
"""Ticks of those that remain when the oldest are merged, all at once."""
MERGED = 1200
"""Most merged ticks; an even number. Until there are so many, each is a single tick."""
MOST_NAMES = 64
"""Most metrics kept: a source may name phases freely, and differently in each step."""


class _Tick(Window):
    """One tick. `row` caches its line of the series until a value changes."""

    __slots__ = ("covered", "is_cold", "row")

    def __init__(self) -> None:
        super().__init__()
        self.covered = False  # all its steps are known
        self.is_cold = False  # one of its steps belongs to a warm-up
        self.row: Values | None = None

    def drawn(self) -> dict[str, float]:
        """Return its values; the rates of steps that are on their way are not known."""
        readings = {name: value for name, value in self.readings.values().items() if _is_kept(name)}
        if not self.covered:
            return readings
        samples_per_s = None if self.samples is None else self.samples / TICK_S
        values = {"steps_per_s": self.steps / TICK_S, "samples_per_s": samples_per_s}
        values["step_ms"] = self.step_ms
        known = {name: value for name, value in values.items() if value is not None}
        return readings | self.times.values() | known


class _Merged:
    """The older ticks, each the mean of `_width` ticks."""

    def __init__(self) -> None:
        self.end = 0  # the first tick after them
        self._width = 1
        self._open = Means()  # the newest one, which lasts until `end`
        self._open_ticks = 0
        self._ends: list[int] = []
        self._columns: dict[str, list[float | None]] = {}

    def add(self, values: Mapping[str, float], ticks: int = 1) -> None:
        while ticks > 0:
            taken = min(ticks, self._width - self._open_ticks)
            self._open.add(values, taken)
            self._open_ticks += taken
            self.end += taken
            ticks -= taken
            if self._open_ticks == self._width:
                self._close()

    def columns(self) -> tuple[tuple[float, ...], dict[str, Values]]:
        ends = tuple(end * TICK_S for end in self._ends)
        if not self._open_ticks:
            return ends, {name: tuple(column) for name, column in self._columns.items()}
        last = self._open.values()
        columns = {name: (*column, last.get(name)) for name, column in self._columns.items()}
        return (*ends, self.end * TICK_S), columns

    def _close(self) -> None:
        values = self._open.values()
        for name in values:
            if name not in self._columns and len(self._columns) < MOST_NAMES:
                self._columns[name] = [None] * len(self._ends)
        for name, column in self._columns.items():
            column.append(values.get(name))
        self._ends.append(self.end)
        self._open, self._open_ticks = Means(), 0
        if len(self._ends) == MERGED:
            self._width *= 2
            self._ends = self._ends[1::2]
            self._columns = {
                name: list(map(_mean, column[::2], column[1::2]))
                for name, column in self._columns.items()
            }


class Ticks:
    """Folds steps and samples into a `Series`. Moments are monotonic seconds."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._ticks: dict[int, _Tick] = {}
        self._merged = _Merged()
        self._merged_columns = self._merged.columns()
        self._names: dict[str, None] = {}  # metrics so far, in the order of a row
        self._ready_from = 0  # the first tick throughout which a worker is ready
        self._covered_to = 0  # the first tick whose steps are not all known
        self._sampled_to = 0  # the tick of the newest sample
        self._series = Series(tick_s=TICK_S)
        self._shown_to = 0
        self._stale = False  # a tick that was shown has changed
        self._since_break = 0  # of the newest step
        self._recent_from = 0  # the first tick after the last break
        self._recent = RecentMeans()
        self._recent_of = (0, 0)  # `_recent_from` and `_covered_to` then

    def begin(self, at_s: float) -> None:
        """Begin at whole ticks, as only those can be covered."""
        self._ready_from = max(self._ready_from, self._index(at_s) + 1)

    def cover(self, until_s: float) -> None:
        """Note that all steps up to `until_s` are folded."""
        end = self._index(until_s)
        for index in range(max(self._ready_from, self._covered_to, end - CAPACITY), end):
            tick = self._tick(index)
            if tick is not None:
                tick.covered = True
                tick.row = None
        self._stale |= end > self._covered_to  # samples may have shown these ticks already
        self._covered_to = max(self._covered_to, end)
        self._merge()

    def recent(self) -> RecentMeans:
        """Return the same object while no further tick is known."""
        known = self._recent_from, self._covered_to
        if self._recent_of != known:
            self._recent, self._recent_of = self._newest_ticks(), known
        return self._recent

    def _newest_ticks(self) -> RecentMeans:
        window, until = Window(), self._newest - NOW_S / TICK_S
        for index in reversed(range(max(self._recent_from, self._merged.end), self._covered_to)):
            tick = self._ticks.get(index)
            if index < until and window.steps >= NOW_STEPS:
                break
            if tick is not None and not tick.is_cold:
                window.meet(tick)
        step_ms = {} if window.step_ms is None else {"step_ms": window.step_ms}
        return RecentMeans(steps=window.steps, values=window.values() | step_ms)

    def step(self, step: Step) -> None:
        duration_s = step.count * step.step_ms / 1000
        began_s = step.finished_s - duration_s
        first, last = self._index(began_s), self._index(step.finished_s)
        if step.since_break < self._since_break:
            self._recent_from = first + 1
        self._since_break = step.since_break
        for index in range(max(first, last - CAPACITY), last + 1):
            tick = self._tick(index)
            if tick is None:
                continue
            share = 1.0
            if first < last:
                tick_s = self._began_s + index * TICK_S
                overlap_s = min(step.finished_s, tick_s + TICK_S) - max(began_s, tick_s)
                share = max(overlap_s, 0.0) / duration_s
            tick.add(step, share)
            tick.is_cold |= step.warm < step.count
            self._touch(tick)

    def read(self, reading: Reading) -> None:
        index = self._index(reading.at_s)
        self._sampled_to = max(self._sampled_to, index)
        tick = self._tick(index)
        if tick is not None:
            tick.read(reading, filter(METRICS.__contains__, reading.values))
            self._touch(tick)
        self._merge()

    def loss(self, at_s: float, loss: float) -> None:
        """Take a loss that was read back by this moment."""
        tick = self._tick(self._index(at_s))
        if tick is not None:
            tick.readings.add({"loss": loss})
            self._touch(tick)

    def series(self) -> Series:
        """Return the same object while nothing changed in the ticks that are over."""
        newest = self._newest
        if self._stale or newest != self._shown_to:
            self._series = self._build(newest)
            self._shown_to = newest
            self._stale = False
        return self._series

    def _build(self, newest: int) -> Series:
        ends, merged = self._merged_columns
        recent = range(self._merged.end if ends else min(self._ticks, default=newest), newest)
        rows = [self._row(index) for index in recent]
        columns = dict(zip(self._names, zip_longest(*rows), strict=False))
        unknown: tuple[Values, Values] = ((None,) * len(ends), (None,) * len(recent))
        values = {
            name: merged.get(name, unknown[0]) + columns.get(name, unknown[1])
            for name in columns | merged
        }
        return Series(
            tick_s=TICK_S,
            at_s=ends + tuple((index + 1) * TICK_S for index in recent),
            values={
                name: column
                for name, column in values.items()
                if any(value is not None for value in column)
            },
        )

    def _row(self, index: int) -> Values:
        tick = self._ticks.get(index)
        if tick is None:
            return ()
        if tick.row is None:
            values = tick.drawn()
            self._names |= dict.fromkeys(values)
            tick.row = tuple(map(values.get, self._names))
        return tick.row

    def _index(self, at_s: float) -> int:
        return floor((at_s - self._began_s) / TICK_S)

    def _tick(self, index: int) -> _Tick | None:
        """None for a tick before the run or already merged."""
        if index < self._merged.end:
            return None
        tick = self._ticks.get(index)
        if tick is None:
            tick = self._ticks[index] = _Tick()
        return tick

    @property
    def _newest(self) -> int:
        return max(self._covered_to, self._sampled_to)

    def _merge(self) -> None:
        begin = self._merged.end or min(self._ticks, default=0)
        if self._newest - begin <= CAPACITY:
            return
        self._merged.end = begin
        until = self._newest - KEPT
        for index in sorted(index for index in self._ticks if index < until):
            self._merged.add({}, index - self._merged.end)
            self._merged.add(self._ticks.pop(index).drawn())
        self._merged.add({}, until - self._merged.end)
        self._merged_columns = self._merged.columns()
        self._stale = True
        if len(self._names) > MOST_NAMES:  # drop metrics that only merged ticks have
            self._names = {}
            for tick in self._ticks.values():
                tick.row = None

    def _touch(self, tick: _Tick) -> None:
        self._stale |= tick.row is not None
        tick.row = None


def _is_kept(name: str) -> bool:
    return bool(METRICS[name].chart or METRICS[name].spark)


def _mean(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return (one + other) / 2
