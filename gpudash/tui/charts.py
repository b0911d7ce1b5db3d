"""What the four charts show: pure functions from a snapshot to titles, lines and axes."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from gpudash import format as fmt
from gpudash.metrics import METRICS, Kind, Line, Metric, Side
from gpudash.snapshot import Marker, Series, Snapshot, Values
from gpudash.tui.axes import latest

RUNS_AHEAD = 0.8
"""Share of the step up to which a busy host still gets ahead of the device."""
WAITS_FOR_DATA = 0.1
"""Share of the step from which waiting for the next batch is worth a word."""
COLOURS = 7
"""That lines have; with more phases than those, they are used again."""


class ChartLine(msgspec.Struct, frozen=True, kw_only=True):
    """One series of a chart and its entry in the legend."""

    label: str
    short: str = ""
    """The label where there is little room; the same one if empty."""
    value: str
    """The newest value, for the legend, padded so that its width stays the same."""
    values: Values = ()
    colour: int
    """Index into the chart's palette; also orders the lines, higher ones on top."""
    side: Side = "left"
    """The axis it is measured on."""


class ChartData(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one chart shows. Two equal ones look the same."""

    title: str
    at_s: tuple[float, ...] = ()
    tick_s: float = 0.5
    lines: tuple[ChartLine, ...] = ()
    least_top: dict[Side, float] = msgspec.field(default_factory=dict)
    """The axis never ends below this: a percentage ends at 100 and not at its maximum."""
    cuts_outliers: bool = False
    """The axis may end below rare values far above the others; it then ends in `↑`."""
    markers: tuple[Marker, ...] = ()
    name_markers: bool = False
    note: str = ""
    """One line under the title: what is missing, and why."""
    empty: str = ""
    """What a chart without a single point says."""


def _chart(snapshot: Snapshot, title: str, lines: Iterable[ChartLine], **more: Any) -> ChartData:
    training = snapshot.state in ("starting", "switching", "training")
    return ChartData(
        title=title,
        at_s=snapshot.series.at_s,
        tick_s=snapshot.series.tick_s,
        lines=tuple(lines),
        markers=snapshot.markers,
        empty="waiting for the first step" if training else "nothing measured",
        **more,
    )


def _drawn(snapshot: Snapshot, chart: str, *kinds: Kind) -> list[ChartLine]:
    """Return the lines of the metrics of these kinds in a chart."""
    return [
        _line(snapshot, name, metric, metric.line)
        for name, metric in METRICS.items()
        if metric.line is not None and metric.line.chart == chart and metric.kind in kinds
        if name in snapshot.series.values or not metric.line.if_measured
    ]


def _line(snapshot: Snapshot, name: str, metric: Metric, line: Line) -> ChartLine:
    values, unit = snapshot.series.of(name), metric.unit
    value = _newest(snapshot, name, metric.kind)
    if unit == "MiB" and any(mib is not None and mib >= 1024 for mib in (*values, value)):
        values, unit = tuple(map(_gib, values)), "GiB"
        value = _gib(value)
    return ChartLine(
        label=line.label,
        short=line.short,
        value=f"{fmt.quantity(value, unit):>{line.width}}",
        values=values,
        colour=line.colour,
        side=line.side,
    )


def _newest(snapshot: Snapshot, name: str, kind: Kind) -> float | None:
    """Return the value now: a rate over some seconds, a reading, or else the newest tick's."""
    if name in ("steps_per_s", "samples_per_s"):
        return snapshot.steps_per_s if name == "steps_per_s" else snapshot.samples_per_s
    reading = {"gpu": snapshot.gpu, "host": snapshot.host}.get(kind)
    return reading.number(name) if reading else latest(snapshot.series.of(name))


def _gib(mib: float | None) -> float | None:
    return None if mib is None else mib / 1024


def throughput(snapshot: Snapshot) -> ChartData:
    """Return steps/s on the left axis, samples/s on the right one."""
    return _chart(snapshot, "throughput", _drawn(snapshot, "throughput", "step"), name_markers=True)


def _reads_gpu(snapshot: Snapshot) -> bool:
    return snapshot.gpu_missing is None and (
        snapshot.gpu is not None or "gpu_util_pct" in snapshot.series.values
    )


def activity(snapshot: Snapshot) -> ChartData:
    """Return GPU utilisation and SM activity; where no GPU is read, the CPU, and why."""
    if _reads_gpu(snapshot):
        title = "GPU activity"
        lines = [*_drawn(snapshot, "activity", "gpu"), *_both_streams(snapshot.series)]
    else:
        title, lines = "CPU of the training", _drawn(snapshot, "activity", "host")
    return _chart(snapshot, title, lines, least_top={"left": 100.0}, note=_no_gpu(snapshot))


def _no_gpu(snapshot: Snapshot) -> str:
    """Return why no GPU is read; nothing where there never was a worker to read one for."""
    if snapshot.gpu_missing is None or (snapshot.state == "failed" and not snapshot.worker_pid):
        return ""
    return f"no GPU is read: {snapshot.gpu_missing}"


def memory_and_power(snapshot: Snapshot) -> ChartData:
    """Return memory on the left axis, power on the right one."""
    lines = _drawn(snapshot, "memory", "gpu")
    if not _reads_gpu(snapshot):
        lines = _drawn(snapshot, "memory", "host") + [one for one in lines if one.side == "right"]
    return _chart(snapshot, "memory", lines)


def step_time(snapshot: Snapshot) -> ChartData:
    """Return the phases as lines: with two streams they overlap, so they do not add up."""
    note = _loader_times(snapshot) or _host_time(snapshot)
    lines = (*_drawn(snapshot, "phases", "step"), *_phases(snapshot))
    return _chart(snapshot, "step time, ms", lines, cuts_outliers=True, note=note)


def _phases(snapshot: Snapshot) -> list[ChartLine]:
    """Return the phases that the training names, in its words; before it starts, the table's."""
    if not snapshot.phases:
        return _drawn(snapshot, "phases", "phase")
    lines = []
    for index, phase in enumerate(snapshot.phases, start=1):
        name = f"{phase.name}_ms"
        metric = METRICS.get(name, Metric("phase", "ms", "A phase of the training's own."))
        known = metric.line or Line("phases", index % COLOURS, 4, phase.label)
        if name in snapshot.series.values or not known.if_measured:
            short = known.short if phase.label == known.label else ""
            line = msgspec.structs.replace(known, label=phase.label, short=short)
            lines.append(_line(snapshot, name, metric, line))
    return lines


def _host_time(snapshot: Snapshot) -> str:
    """Return how long the host waited for data; or was busy, and whether ahead of a GPU."""
    series = snapshot.series
    host_ms, step_ms = latest(series.of("host_ms")), latest(series.of("step_ms"))
    if host_ms is None or not step_ms:
        return ""
    if _waits_for_data(series):  # then it is idle without being ahead of anything
        data_ms = fmt.milliseconds(latest(series.of("data_ms")))
        return f"host waits for data {data_ms} of {fmt.milliseconds(step_ms)} ms"
    busy = f"host busy {fmt.milliseconds(host_ms)} of {fmt.milliseconds(step_ms)} ms"
    if snapshot.device is None or snapshot.device.kind == "cpu":  # then they are one
        return busy
    return f"{busy}: {'runs ahead' if host_ms < RUNS_AHEAD * step_ms else 'not ahead'}"


def _loader_times(snapshot: Snapshot) -> str:
    """Return the transforms of a loader worker where the step waits for data."""
    if not snapshot.transform_ms or not _waits_for_data(snapshot.series):
        return ""
    times = " ".join(f"{name} {ms:.2g}" for name, ms in snapshot.transform_ms.items())
    return f"loader, ms a sample: {times}"


def _waits_for_data(series: Series) -> bool:
    data_ms, step_ms = latest(series.of("data_ms")), latest(series.of("step_ms"))
    if not data_ms or not step_ms:
        return False
    return data_ms >= WAITS_FOR_DATA * step_ms


def _both_streams(series: Series) -> tuple[ChartLine, ...]:
    """Return the share of the time in which both streams were busy, if there are two."""
    shares = tuple(
        None if overlap is None or not step else 100 * overlap / step
        for overlap, step in zip(series.of("overlap_ms"), series.of("step_ms"), strict=False)
    )
    if not shares:
        return ()
    line = ChartLine(
        label="both streams",
        short="both",
        value=f"{fmt.percent(latest(shares)):>5}",
        values=shares,
        colour=3,
    )
    return (line,)


CHARTS: dict[str, Callable[[Snapshot], ChartData]] = {
    "throughput": throughput,
    "activity": activity,
    "memory": memory_and_power,
    "phases": step_time,
}
"""Widget id → what it shows, in reading order."""
