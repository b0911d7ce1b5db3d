"""The readings of GPU and host: the most important ones, and in a zoomed panel all of them."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from rich.cells import cell_len, set_cell_size

from gpudash import format as fmt
from gpudash.metrics import METRICS
from gpudash.present import axes
from gpudash.present.axes import TimeView, bins_of, nice_ceiling, range_of
from gpudash.present.cells import Parts, bar_of, beside, cell, cut, rule
from gpudash.present.curves import LEAST_ROWS, curves, line_of
from gpudash.present.readings import (
    ShownReading,
    joined,
    reading,
    readings,
    sparklines,
    step_ms_at,
)
from gpudash.present.throughput import throughput
from gpudash.protocol.readings import HostReading
from gpudash.snapshot import Series, Snapshot
from gpudash.tui.bars import button
from gpudash.tui.widgets.panel import Frame, TimePanel, gutter_of, moment_cell

LEAST_LINE = 4
"""Fewest columns of a sparkline."""
LEAST_BAR, MOST_BAR = 5, 12
"""Columns of a value's bar against its limit."""
ROOMY = 48
"""Columns from which the title is `GPU and host`."""
DRAWN = ("gpu_util_pct", "loss")
"""What has a curve where there is room."""
CURVE_FROM = 16
"""Rows from which it has one: seven are left for the most important readings."""
CURVE_ROWS = 1 + LEAST_ROWS
"""Rows of a curve with its name."""
COMPACT_ROWS = 2
"""Rows up to which rate and step time are beside the other readings: the charts have no room."""


class Activity(TimePanel):
    """The most important readings that fit; all of them where it has all of the room."""

    whole = False
    """Whether it has all of the room."""
    _readings: Sequence[ShownReading] = ()

    def shown_of(self, snapshot: Snapshot) -> tuple[object, ...]:
        self._readings = readings(snapshot, self.view)
        now_s = snapshot.elapsed_s if self.whole else 0.0
        return self._readings, snapshot.series.at_s, no_gpu(snapshot), bool(snapshot.ranks), now_s

    @property
    def wanted_rows(self) -> int:
        """Rows for its rule, all readings, and a curve."""
        rows = len(self._why(*self.size)) + len(self._readings)
        return 1 + rows + CURVE_ROWS * bool(self._drawn)

    def time_at(self, x: int) -> float | None:
        width, height = self.inside
        if self.whole or self._is_compact(width, height):
            return None
        columns = _layout(self._fitting(width, height), width)
        time_range = range_of(self._snapshot.series, columns.line, self.view)
        return time_range.moment_in(x - columns.before_line) if columns.line else None

    def frame(self) -> Frame:
        width, height = self.inside
        kinds = {one.kind for one in self._fitting(width, height)}
        title = "GPU" if "gpu" in kinds else "host"
        if width >= ROOMY and {"gpu", "host"} <= kinds:
            title = "GPU and host"
        at = () if self.view.moment_s is None else (moment_cell(self.view, self._snapshot),)
        whose = [cell("rank 0", "dim", rank=2)] * bool(self._snapshot.ranks)
        more = button("close" if self.whole else "all", "screen.device", rank=1)
        return (cell(f"³{title}", "strong"), *whose), (*at, more)

    def body(self, width: int, height: int) -> Iterator[Parts]:
        if self.whole:
            yield from self._all(width, height)
            return
        for line in self._why(width, height):
            yield ((f" {line}", "dim"),)
        series, view = self._snapshot.series, self.view
        if self._is_compact(width, height):
            half = width // 2
            steps = _reading_rows(_of_steps(self._snapshot), series, view, half)
            others = _reading_rows(self._fitting(width, height), series, view, width - half)
            yield from beside(steps, others, half)
            return
        fitting = self._fitting(width, height)
        yield from _reading_rows(fitting, series, view, width)
        if self._has_curve(height - len(self._why(width, height))):
            yield from self._curves(width)

    def _curves(self, width: int) -> Iterator[Parts]:
        names = self._drawn[: 1 + (width >= TWO_COLUMNS)]
        each = width // len(names)
        first, *others = (self._curve(name, each) for name in names)
        yield from beside(first, others[0], each) if others else first

    def _curve(self, name: str, width: int) -> Iterator[Parts]:
        series, time_range, metric = self._snapshot.series, self.range_in(width), METRICS[name]
        runs = axes.cut(series.of(name), bins_of(series.at_s, time_range), time_range, series.at_s)
        top = 100.0 if metric.unit == "%" else axes.axis_top(axes.highest(runs))
        yield ((f" {', '.join(filter(None, (metric.label, metric.unit)))}", "dim"),)
        yield from curves((line_of("rate", runs),), top, time_range, LEAST_ROWS, gutter_of(width))

    @property
    def _drawn(self) -> tuple[str, ...]:
        """What of `DRAWN` was measured; a curve begins at 0."""
        known = {name: fmt.measured(self._snapshot.series.of(name)) for name in DRAWN}
        return tuple(name for name, values in known.items() if values and min(values) >= 0)

    def _all(self, width: int, height: int) -> Iterator[Parts]:
        series = self._snapshot.series
        lines = device_lines(self._snapshot, width)
        if width < TWO_COLUMNS or len(lines) <= height:
            yield from _column(lines[:height], series, width)
            return
        half = width // 2
        lines = device_lines(self._snapshot, half)
        left, right = (lines[:height], lines[height : 2 * height])
        yield from beside(_column(left, series, half), _column(right, series, half), half)

    def _is_compact(self, width: int, height: int) -> bool:
        """Return whether it stands for the charts too, which have no room."""
        return height <= COMPACT_ROWS and width >= TWO_COLUMNS

    def _why(self, width: int, height: int) -> list[str]:
        if height < 3 or self._is_compact(width, height):
            return []
        return textwrap.wrap(
            no_gpu(self._snapshot), max(width - 2, 1), max_lines=height - 2, placeholder="…"
        )

    def _fitting(self, width: int, height: int) -> Sequence[ShownReading]:
        room = max(height - len(self._why(width, height)), 0)
        if self._has_curve(room):
            room -= CURVE_ROWS
        return self._readings[:room]

    def _has_curve(self, room: int) -> bool:
        enough = min(CURVE_FROM, len(self._readings) + CURVE_ROWS)
        return room >= enough and bool(self._drawn)


def _of_steps(snapshot: Snapshot) -> list[ShownReading]:
    rate = throughput(snapshot)
    step_ms = step_ms_at(snapshot.steps_per_s)
    values = {rate.name: (rate.unit, rate.now), "step_ms": ("step, ms", step_ms)}

    def shown(name: str, label: str, value: float | None) -> ShownReading:
        past = snapshot.series.of(name)
        text, top = fmt.significant(value), nice_ceiling(max(fmt.measured(past), default=0.0))
        return ShownReading(metric=name, label=label, value=text, past=past, top=top)

    return [shown(name, *one) for name, one in values.items()]


def no_gpu(snapshot: Snapshot) -> str:
    """Return why no GPU is read; empty if that is not known yet, or no training has run."""
    if snapshot.gpu_missing is None or snapshot.state == "starting":
        return ""
    if snapshot.state == "failed" and not snapshot.worker_pid:
        return ""
    return f"no GPU is read: {fmt.plain(snapshot.gpu_missing)}"


def _reading_rows(
    shown: Sequence[ShownReading], series: Series, view: TimeView, width: int
) -> Iterator[Parts]:
    columns = _layout(shown, width)
    lines = sparklines(series, shown, columns.line, view)
    for one, line in zip(shown, lines, strict=True):
        value = one.value if cell_len(one.value) <= width - 2 else "…"
        label = cut(one.label, max(width - 3 - cell_len(value), 0))
        ink = "rate" if one.of_device else "host"
        value_ink = "busy" if one.is_alarming else "text"
        gap = " " * (columns.label + columns.value - cell_len(label + value) + 1)
        if not columns.line or not one.past:
            gap = " " * (width - 2 - cell_len(label + value))
            yield (f" {label}{gap}", "dim"), (value, value_ink)
            continue
        yield (
            (f" {label}{gap}", "dim"),
            (value, value_ink),
            (f" {set_cell_size(_bar(one, columns.bar), columns.bar)} " * bool(columns.bar), ink),
            (f" {line}", ink),
        )


def _bar(one: ShownReading, width: int) -> str:
    """Draw the value against its limit, if it has one."""
    known = fmt.measured((one.now,)) if one.has_limit else ()
    return "".join(bar_of(now / one.top, width) for now in known)


class _Columns(NamedTuple):
    """The widths of label, value, bar and sparkline; 0 for one without room."""

    label: int
    value: int
    bar: int = 0
    line: int = 0

    @property
    def before_line(self) -> int:
        return self.label + self.value + len("   ") + (self.bar + 2 if self.bar else 0)


def _layout(shown: Sequence[ShownReading], width: int) -> _Columns:
    drawn = [one for one in shown if one.past]
    label = max((cell_len(one.label) for one in drawn), default=0)
    value = max((cell_len(one.value) for one in drawn), default=0)
    room = width - label - value - len("    ")
    if room < LEAST_LINE:
        return _Columns(label, value)
    bar = min(room // 3, MOST_BAR) if room >= LEAST_BAR + 2 + LEAST_LINE else 0
    bar = bar if bar >= LEAST_BAR else 0
    return _Columns(label, value, bar, room - (bar + 2 if bar else 0))


TWO_COLUMNS = 68
"""Width from which lines that do not fit are in two columns."""
NOW = TimeView()
SHOWN_TOGETHER = {
    "pcie_rx_mib_s": (" in, ", "pcie_tx_mib_s"),
    "nvlink_rx_mib_s": (" in, ", "nvlink_tx_mib_s"),
}
"""Metric → text and metric that are added to its row."""
IF_THERE = {"nvlink_rx_mib_s"}
"""Metrics that have no row if they were not measured, as most machines have none."""


class Text(msgspec.Struct, frozen=True):
    """A line of text, perhaps a heading."""

    text: str
    heads: bool = False


DeviceLine: TypeAlias = ShownReading | Text


def device_lines(snapshot: Snapshot, width: int) -> list[DeviceLine]:
    return [
        *_gpu(snapshot, max(width - 2, 1)),
        *_training(snapshot),
        *_own(snapshot),
        *_loader(snapshot),
    ]


def _gpu(snapshot: Snapshot, width: int) -> Iterator[DeviceLine]:
    gpu = snapshot.gpu
    name = snapshot.device.name if snapshot.device else fmt.ABSENT
    yield Text(f"GPU {gpu.index}, {gpu.name}" if gpu else f"trains on {name}", heads=True)
    if gpu is None:
        sentence = no_gpu(snapshot) or "the first reading has not come yet"
        yield from map(Text, textwrap.wrap(sentence, width))
        return
    for metric, known in METRICS.items():
        if known.kind == "gpu" and known.label and (metric in gpu.values or metric not in IF_THERE):
            one = reading(snapshot, metric, NOW)
            beside = SHOWN_TOGETHER.get(metric)
            if beside is not None and metric in gpu.values:
                value = fmt.quantity(gpu.number(beside[1]), METRICS[beside[1]].unit)
                one = msgspec.structs.replace(one, value=joined(one.value, beside[0], value))
            yield one
    missing = snapshot.gpu_unread | snapshot.gpus_lost
    for what, why in missing.items():
        yield from map(Text, textwrap.wrap(fmt.plain(f"{what}: {why}"), width))


def _training(snapshot: Snapshot) -> Iterator[DeviceLine]:
    pid = f", pid {snapshot.worker_pid}" if snapshot.worker_pid else ""
    yield Text(f"training{pid}", heads=True)
    for metric, known in METRICS.items():
        if metric == "cpu_pct":
            used = snapshot.host.number(metric) if snapshot.host else None
            yield ShownReading(label=known.label, value=fmt.cores(used, snapshot.usable_cores))
        elif metric.startswith("mem_") and snapshot.device and snapshot.device.kind == "cpu":
            continue
        elif known.kind == "host" and known.label:
            yield reading(snapshot, metric, NOW)


def _own(snapshot: Snapshot) -> Iterator[DeviceLine]:
    host, costs_ms = snapshot.host or HostReading(at_s=0.0), snapshot.instruments_ms
    costs = fmt.ABSENT if costs_ms is None else f"{fmt.significant(costs_ms)} ms a step"
    takes = fmt.cores(host.number("own_cpu_pct")), fmt.memory(host.number("own_rss_mib"))
    yield ShownReading(label="gpudash", value=", ".join(takes))
    yield ShownReading(label="measuring", value=costs)
    unattributed = fmt.with_unit(snapshot.unattributed_pct, "%", 1)
    yield ShownReading(label="unattributed so far", value=unattributed)


def _loader(snapshot: Snapshot) -> Iterator[DeviceLine]:
    if snapshot.transform_ms or snapshot.skipped_samples:
        yield Text("loader, a sample", heads=True)
    for name, ms in snapshot.transform_ms.items():
        yield ShownReading(label=fmt.plain(name), value=f"{fmt.milliseconds(ms)} ms")
    if snapshot.skipped_samples:
        yield ShownReading(label="unreadable, skipped", value=f"{snapshot.skipped_samples:,}")


def _column(lines: Sequence[DeviceLine], series: Series, width: int) -> Iterator[Parts]:
    rows = _reading_rows(
        [one for one in lines if isinstance(one, ShownReading)], series, NOW, width
    )
    for line in lines:
        if isinstance(line, ShownReading):
            yield next(rows)
        elif line.heads:
            yield rule(fmt.plain(line.text), width)
        else:
            yield ((f" {fmt.clip(fmt.plain(line.text), width - 2)}", "dim"),)
