"""What the four charts show: pure functions from a snapshot to titles, lines and axes."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from gpudash import format as fmt
from gpudash.snapshot import Marker, Series, Snapshot, Values
from gpudash.tui.axes import latest

Side: TypeAlias = Literal["left", "right"]

PHASES = ("data", "copy", "prepare", "forward", "backward", "optimizer")
RUNS_AHEAD = 0.8
"""Share of the step up to which a busy host still gets ahead of the device."""
WAITS_FOR_DATA = 0.1
"""Share of the step from which waiting for the next batch is worth a word."""
GRAPH = "graph"
"""Stands for the last three where they are replayed as one CUDA graph."""


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


SHORT = {"forward": "fwd", "backward": "bwd", "optimizer": "opt"}


def _empty(snapshot: Snapshot) -> str:
    if snapshot.state in ("starting", "switching", "training"):
        return "waiting for the first step"
    return "nothing measured"


def throughput(snapshot: Snapshot) -> ChartData:
    """Return steps/s on the left axis, samples/s on the right one."""
    series = snapshot.series
    return ChartData(
        title="throughput",
        at_s=series.at_s,
        tick_s=series.tick_s,
        lines=(
            ChartLine(
                label="steps/s",
                value=f"{fmt.significant(snapshot.steps_per_s):>5}",
                values=series.steps_per_s,
                colour=1,
            ),
            ChartLine(
                label="samples/s",
                value=f"{fmt.significant(snapshot.samples_per_s):>5}",
                values=series.samples_per_s,
                colour=0,
                side="right",
            ),
        ),
        markers=snapshot.markers,
        name_markers=True,
        empty=_empty(snapshot),
    )


def _reads_gpu(snapshot: Snapshot) -> bool:
    return snapshot.gpu_missing is None and (
        snapshot.gpu is not None or any(value is not None for value in snapshot.series.util_pct)
    )


def activity(snapshot: Snapshot) -> ChartData:
    """Return GPU utilisation and SM activity; where no GPU is read, the CPU, and why."""
    series = snapshot.series
    if _reads_gpu(snapshot):
        lines: tuple[ChartLine, ...] = _gpu_lines(snapshot, series)
        title = "GPU activity"
    else:
        cpu = snapshot.host.cpu_pct if snapshot.host else latest(series.cpu_pct)
        lines = (
            ChartLine(
                label="of one core",
                value=f"{fmt.percent(cpu):>6}",
                values=series.cpu_pct,
                colour=1,
            ),
        )
        title = "CPU of the training"
    return ChartData(
        title=title,
        at_s=series.at_s,
        tick_s=series.tick_s,
        lines=lines,
        least_top={"left": 100.0},
        markers=snapshot.markers,
        note=_no_gpu(snapshot),
        empty=_empty(snapshot),
    )


def _no_gpu(snapshot: Snapshot) -> str:
    """Return why no GPU is read; nothing where there never was a worker to read one for."""
    if snapshot.gpu_missing is None or (snapshot.state == "failed" and not snapshot.worker_pid):
        return ""
    return f"no GPU is read: {snapshot.gpu_missing}"


def _gpu_lines(snapshot: Snapshot, series: Series) -> tuple[ChartLine, ...]:
    gpu = snapshot.gpu
    util = ChartLine(
        label="utilisation",
        short="util",
        value=f"{fmt.percent(gpu.util_pct if gpu else latest(series.util_pct)):>5}",
        values=series.util_pct,
        colour=0,
    )
    both = _both_streams(series)
    if all(value is None for value in series.sm_active_pct):
        return (util, *both)
    active = ChartLine(
        label="SM active",
        value=f"{fmt.percent(gpu.sm_active_pct if gpu else latest(series.sm_active_pct)):>5}",
        values=series.sm_active_pct,
        colour=1,
    )
    return (util, active, *both)


def memory_and_power(snapshot: Snapshot) -> ChartData:
    """Return memory on the left axis, power on the right one."""
    series = snapshot.series
    on_gpu = _reads_gpu(snapshot)
    gpu, host = snapshot.gpu, snapshot.host
    if on_gpu:
        values = series.mem_used_mib
        used = gpu.mem_used_mib if gpu else latest(values)
    else:
        values = series.worker_rss_mib
        used = host.worker_rss_mib if host else latest(values)
    in_gib = any(value is not None and value >= 1024 for value in values)
    power = ChartLine(
        label="power",
        value=f"{fmt.with_unit(gpu.power_w if gpu else None, 'W'):>5}",
        values=series.power_w if on_gpu else (),
        colour=0,
        side="right",
    )
    memory = ChartLine(
        label="GPU" if on_gpu else "training",
        value=f"{_memory(used, in_gib=in_gib):>8}",
        values=_in_gib(values) if in_gib else values,
        colour=1,
    )
    return ChartData(
        title="memory",
        at_s=series.at_s,
        tick_s=series.tick_s,
        lines=(memory, power),
        markers=snapshot.markers,
        empty=_empty(snapshot),
    )


def _memory(mib: float | None, *, in_gib: bool) -> str:
    """Return the value in the unit of its axis."""
    if mib is None:
        return fmt.ABSENT
    return fmt.with_unit(mib / 1024, "GiB", 1) if in_gib else fmt.with_unit(mib, "MiB")


def _in_gib(values: Values) -> Values:
    return tuple(None if value is None else value / 1024 for value in values)


def step_time(snapshot: Snapshot) -> ChartData:
    """Return the phases as lines: with two streams they overlap, so they do not add up."""
    series = snapshot.series
    columns: dict[str, Values] = {
        "data": series.data_ms,
        "copy": series.copy_ms,
        "prepare": series.prepare_ms,
        "forward": series.forward_ms,
        "backward": series.backward_ms,
        "optimizer": series.optimizer_ms,
        GRAPH: series.graph_ms,
    }
    shown = (*PHASES, GRAPH) if any(value is not None for value in series.graph_ms) else PHASES
    return ChartData(
        title="step time, ms",
        at_s=series.at_s,
        tick_s=series.tick_s,
        lines=tuple(
            ChartLine(
                label=phase,
                short=SHORT.get(phase, phase),
                value=f"{fmt.milliseconds(latest(columns[phase])):>4}",
                values=columns[phase],
                colour=colour,
            )
            for colour, phase in enumerate(shown)
        ),
        cuts_outliers=True,
        markers=snapshot.markers,
        note=_loader_times(snapshot) or _host_time(snapshot),
        empty=_empty(snapshot),
    )


def _host_time(snapshot: Snapshot) -> str:
    """Return how long the host waited for data; or was busy, and whether ahead of a GPU."""
    series = snapshot.series
    host_ms, step_ms = latest(series.host_ms), latest(series.step_ms)
    if host_ms is None or not step_ms:
        return ""
    if _waits_for_data(series):  # then it is idle without being ahead of anything
        data_ms = fmt.milliseconds(latest(series.data_ms))
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
    data_ms, step_ms = latest(series.data_ms), latest(series.step_ms)
    if not data_ms or not step_ms:
        return False
    return data_ms >= WAITS_FOR_DATA * step_ms


def _both_streams(series: Series) -> tuple[ChartLine, ...]:
    """Return the share of the time in which both streams were busy, if there are two."""
    if all(value is None for value in series.overlap_ms):
        return ()
    shares = tuple(
        None if overlap is None or not step else 100 * overlap / step
        for overlap, step in zip(series.overlap_ms, series.step_ms, strict=True)
    )
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
