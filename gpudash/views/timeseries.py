"""The recent past in ticks of equal length, for charts. Memory does not grow with the run.

A step counts in every tick it overlaps, by the share of its duration that lies there: so a
step of three seconds draws a level line instead of a tooth, and the rates times the tick's
length still add up to the steps trained. The times of a tick weigh its steps by that share.
"""

from math import floor, isfinite

from gpudash.protocol import GpuReading, HostReading, Step
from gpudash.snapshot import Series, Values

TICK_S = 0.5
CAPACITY = 1200
"""Ticks kept: ten minutes."""

_TIMES = (
    "step_ms",
    "data_ms",
    "copy_ms",
    "prepare_ms",
    "forward_ms",
    "backward_ms",
    "optimizer_ms",
    "graph_ms",
    "overlap_ms",
    "host_ms",
    "device_ms",
)
_GPU = ("util_pct", "sm_active_pct", "mem_used_mib", "power_w")
_HOST = ("cpu_pct", "worker_rss_mib")
_COLUMNS = ("at_s", "steps_per_s", "samples_per_s", *_TIMES, *_GPU, *_HOST)


class _Means:
    """Weighted means of several columns, each with its own count of what was measured."""

    __slots__ = ("_sums", "_weights")

    def __init__(self, columns: int) -> None:
        self._sums = [0.0] * columns
        self._weights = [0.0] * columns

    def add(self, values: Values, weight: float = 1.0) -> None:
        for column, value in enumerate(values):
            if value is not None and isfinite(value):  # a chart cannot draw NaN
                self._sums[column] += weight * value
                self._weights[column] += weight

    def values(self) -> Values:
        pairs = zip(self._sums, self._weights, strict=True)
        return tuple(total / weight if weight else None for total, weight in pairs)


class _Tick:
    """One tick. `row` is its line of the series, kept until something in it changes."""

    __slots__ = ("covered", "gpu", "host", "row", "samples", "steps", "times")

    def __init__(self) -> None:
        self.covered = False  # known to the end whether steps were trained
        self.steps = 0.0
        self.samples = 0.0
        self.times = _Means(len(_TIMES))
        self.gpu = _Means(len(_GPU))
        self.host = _Means(len(_HOST))
        self.row: Values | None = None


class Ticks:
    """Folds steps and samples into a `Series`. Moments are monotonic seconds."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._ticks: dict[int, _Tick] = {}
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
        times = tuple(getattr(step, name) for name in _TIMES)
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
            tick.samples += share * step.samples
            tick.times.add(times, share * step.count)
            self._touch(tick)

    def gpu(self, sample: GpuReading) -> None:
        """Take a sample of the GPU that is shown."""
        tick = self._sampled(sample.at_s)
        if tick is not None:
            tick.gpu.add(tuple(getattr(sample, name) for name in _GPU))

    def host(self, sample: HostReading) -> None:
        """Take a sample of the training processes."""
        tick = self._sampled(sample.at_s)
        if tick is not None:
            tick.host.add(tuple(getattr(sample, name) for name in _HOST))

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
        rows = [self._row(index) for index in range(max(begin, newest - CAPACITY), newest)]
        if not rows:
            return Series(tick_s=TICK_S)
        columns = dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True))
        return Series(tick_s=TICK_S, **columns)

    def _row(self, index: int) -> Values:
        tick = self._ticks.get(index)
        at_s = (index + 1) * TICK_S
        if tick is None:
            return (at_s, *(None,) * (len(_COLUMNS) - 1))
        if tick.row is None:
            steps: Values = (None,) * (2 + len(_TIMES))
            if tick.covered:
                steps = (tick.steps / TICK_S, tick.samples / TICK_S, *tick.times.values())
            tick.row = (at_s, *steps, *tick.gpu.values(), *tick.host.values())
        return tick.row

    def _sampled(self, at_s: float) -> _Tick | None:
        index = self._index(at_s)
        self._sampled_to = max(self._sampled_to, index)
        tick = self._tick(index)
        if tick is not None:
            self._touch(tick)
        return tick

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

    def _touch(self, tick: _Tick) -> None:
        self._stale |= tick.row is not None
        tick.row = None
