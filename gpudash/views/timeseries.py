"""The recent past in ticks of equal length, for charts. Memory does not grow with the run.

A step counts in every tick it overlaps, by the share of its duration that lies there: so a
step of three seconds draws a level line instead of a tooth, and the rates times the tick's
length still add up to the steps trained. The times of a tick weigh its steps by that share.
"""

from itertools import zip_longest
from math import floor

from gpudash.metrics import METRICS
from gpudash.protocol import Reading, Step
from gpudash.snapshot import Series, Values
from gpudash.statistics import Means, total

TICK_S = 0.5
CAPACITY = 1200
"""Ticks kept: ten minutes."""


class _Tick:
    """One tick. `row` is its line of the series, kept until something in it changes."""

    __slots__ = ("covered", "readings", "row", "samples", "steps", "times")

    def __init__(self) -> None:
        self.covered = False  # known to the end whether steps were trained
        self.steps = 0.0
        self.samples: float | None = 0.0
        self.times = Means()
        self.readings = Means()
        self.row: Values | None = None


class Ticks:
    """Folds steps and samples into a `Series`. Moments are monotonic seconds."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._ticks: dict[int, _Tick] = {}
        self._names: dict[str, None] = {}  # of all that was measured so far, in a row's order
        self._ready_from = 0  # the first tick that a worker's readiness covers whole
        self._covered_to = 0  # the first tick of which it is not known what was trained
        self._sampled_to = 0  # the tick of the newest sample
        self._series = Series(tick_s=TICK_S)
        self._shown_to = 0
        self._stale = False  # a tick that was shown has changed

    def begin(self, at_s: float) -> None:
        """Note that a worker is ready: whole ticks from here on can be covered."""
        self._ready_from = max(self._ready_from, self._index(at_s) + 1)

    def cover(self, until_s: float) -> None:
        """No more steps than those folded were trained up to here."""
        end = self._index(until_s)
        for index in range(max(self._ready_from, self._covered_to, end - CAPACITY), end):
            tick = self._tick(index)
            if tick is not None:
                tick.covered = True
                tick.row = None
        self._stale |= end > self._covered_to  # samples may have shown these ticks already
        self._covered_to = max(self._covered_to, end)

    def step(self, step: Step) -> None:
        """Spread a finished step over the ticks it overlaps."""
        duration_s = step.count * step.step_ms / 1000
        began_s = step.finished_s - duration_s
        times = {
            **{f"{name}_ms": taken_ms for name, taken_ms in (step.phases_ms or {}).items()},
            "step_ms": step.step_ms,  # whatever a source calls its phases
            "data_ms": step.data_ms,
            "host_ms": step.host_ms,
            "device_ms": step.device_ms,
        }
        last = self._index(step.finished_s)
        for index in range(max(self._index(began_s), last - CAPACITY), last + 1):
            tick = self._tick(index)
            if tick is None:
                continue
            share = 1.0
            if duration_s > 0:
                tick_s = self._began_s + index * TICK_S
                overlap_s = min(step.finished_s, tick_s + TICK_S) - max(began_s, tick_s)
                share = max(overlap_s, 0.0) / duration_s
            tick.steps += share * step.count
            samples = None if step.samples is None else share * step.samples
            tick.samples = total((tick.samples, samples))
            tick.times.add(times, share * step.count)
            self._touch(tick)

    def read(self, reading: Reading) -> None:
        """Take a reading of the GPU that is shown, or of the training processes."""
        index = self._index(reading.at_s)
        self._sampled_to = max(self._sampled_to, index)
        tick = self._tick(index)
        if tick is not None:
            tick.readings.add(
                {name: reading.number(name) for name in reading.values if _is_kept(name)}
            )
            self._touch(tick)

    def series(self) -> Series:
        """Return the ticks that are over; the same object while nothing in them changed."""
        newest = self._newest
        if self._stale or newest != self._shown_to:
            self._series = self._build(newest)
            self._shown_to = newest
            self._stale = False
        return self._series

    def _build(self, newest: int) -> Series:
        begin = min(self._ticks, default=newest)
        shown = range(max(begin, newest - CAPACITY), newest)
        rows = [self._row(index) for index in shown]
        columns = zip(self._names, zip_longest(*rows), strict=False)
        return Series(
            tick_s=TICK_S,
            at_s=tuple((index + 1) * TICK_S for index in shown),
            values={
                name: column
                for name, column in columns
                if any(value is not None for value in column)
            },
        )

    def _row(self, index: int) -> Values:
        """Return the tick's values in the order of the names, as far as they were known then."""
        tick = self._ticks.get(index)
        if tick is None:
            return ()
        if tick.row is None:
            values = tick.readings.values()
            if tick.covered:
                values["steps_per_s"] = tick.steps / TICK_S
                values |= {} if tick.samples is None else {"samples_per_s": tick.samples / TICK_S}
                values |= tick.times.values()
            self._names |= dict.fromkeys(values)
            tick.row = tuple(map(values.get, self._names))
        return tick.row

    def _index(self, at_s: float) -> int:
        return floor((at_s - self._began_s) / TICK_S)

    def _tick(self, index: int) -> _Tick | None:
        """Return the tick, made if need be; None for one before the run or forgotten."""
        tick = self._ticks.get(index)
        if tick is None and index >= max(0, self._newest - 2 * CAPACITY):
            tick = self._ticks[index] = _Tick()
            if len(self._ticks) > 2 * CAPACITY:
                self._forget()
        return tick

    @property
    def _newest(self) -> int:
        return max(self._covered_to, self._sampled_to)

    def _forget(self) -> None:
        oldest = self._newest - CAPACITY
        self._ticks = {index: tick for index, tick in self._ticks.items() if index >= oldest}
        self._names = {}  # those of ticks that are gone are not to be kept either
        for tick in self._ticks.values():
            tick.row = None

    def _touch(self, tick: _Tick) -> None:
        self._stale |= tick.row is not None
        tick.row = None


def _is_kept(name: str) -> bool:
    metric = METRICS.get(name)
    return metric is not None and (metric.line is not None or metric.kind == "host")
