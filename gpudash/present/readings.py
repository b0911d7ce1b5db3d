"""Readings with sparklines of their recent values: pure functions from a snapshot to text."""

from collections.abc import Iterable, Iterator
from math import inf

import msgspec

from gpudash import format as fmt
from gpudash.metrics import METRICS, Kind
from gpudash.present.axes import (
    TimeView,
    bins_of,
    latest,
    means,
    nice_ceiling,
    range_of,
    value_at,
)
from gpudash.present.cells import level_of
from gpudash.protocol.readings import GpuReading, HostReading
from gpudash.snapshot import Series, Snapshot, Values

ORDER = (
    "gpu_util_pct",
    "sm_active_pct",
    "overlap_ms",
    "tensor_active_pct",
    "dram_active_pct",
    "mem_used_mib",
    "power_w",
    "mem_reserved_mib",
    "mem_allocated_mib",
    "sm_clock_mhz",
    "throttle",
    "core_wait_pct",
    "temperature_c",
    "cpu_pct",
    "worker_rss_mib",
    "data_ms",
    "host_ms",
)
"""Most important first; without room the last ones are left out. Other metrics follow these."""
NEWEST = (
    "steps_per_s",
    "samples_per_s",
    "tokens_per_s",
    "step_ms_p50",
    "step_ms_p95",
    "loss",
)
"""Metrics that a snapshot has beside the series."""
ESSENTIAL = ("gpu_util_pct", "mem_used_mib", "power_w", "core_wait_pct", "cpu_pct")
"""Shown as `–` if not measured; other metrics are left out."""


LIMITS = {"power_w": "power_limit_w"}
"""Metric → the metric that it cannot exceed."""
OF_LIMIT = ("mem_used_mib", "power_w")
"""Metrics whose value is shown with its limit."""


class ShownReading(msgspec.Struct, frozen=True, kw_only=True):
    """A value and its past."""

    metric: str = ""
    kind: Kind = "run"
    """The metric's kind."""
    label: str
    value: str
    """The value with its unit."""
    past: Values = ()
    """Past values in the scale's unit, aligned with the series."""
    scale: str = ""
    """The value at the sparkline's top; empty for 100 %."""
    top: float = 100.0
    now: float | None = None
    """The value in the scale's unit."""
    has_limit: bool = True
    """Whether the top is one that cannot be exceeded, and not only the highest so far."""

    @property
    def of_device(self) -> bool:
        return self.kind == "gpu" or self.metric.startswith(("overlap_", "mem_"))

    @property
    def is_alarming(self) -> bool:
        """Whether the clocks are throttled."""
        return self.metric == "throttle" and self.value not in ("nothing", fmt.ABSENT)


def readings(snapshot: Snapshot, view: TimeView) -> list[ShownReading]:
    """Return the most important reading first."""
    names = [name for name, metric in METRICS.items() if metric.spark and _belongs(snapshot, name)]
    place = {name: index for index, name in enumerate(ORDER)}
    names.sort(key=lambda name: place.get(name, len(ORDER)))
    return [reading(snapshot, name, view) for name in names]


def _belongs(snapshot: Snapshot, name: str) -> bool:
    """Include a metric that had a value at any time, or is essential."""
    sources = (snapshot.gpu, snapshot.host)
    if name in snapshot.series.values or any(one and name in one.values for one in sources):
        return True
    return name in ESSENTIAL and (METRICS[name].kind != "gpu" or snapshot.gpu_missing is None)


def reading(snapshot: Snapshot, name: str, view: TimeView) -> ShownReading:
    metric, past = METRICS[name], snapshot.series.of(name)
    value = value_of(snapshot, name, view)
    one = ShownReading(
        metric=name,
        kind=metric.kind,
        label=metric.label,
        value=quantity(name, value),
        past=past,
        now=None if isinstance(value, str) else value,
    )
    if metric.kind != "step":
        return _scaled(snapshot, one)
    step_ms = step_value(snapshot, "step_ms", view)
    share = None if isinstance(value, str) else _share(value, step_ms)
    shares = tuple(map(_share, past, snapshot.series.of("step_ms")))
    return msgspec.structs.replace(one, value=fmt.percent(share), past=shares, now=share)


def quantity(name: str, value: float | str | None) -> str:
    """Give CPU time in cores, not in percent of one."""
    if name == "throttle" and value == "none":
        return "nothing"
    if name == "loss" and not isinstance(value, str):
        return fmt.loss(value)
    if name.endswith("cpu_pct") and not isinstance(value, str):
        return fmt.cores(value)
    return fmt.plain(fmt.quantity(value, METRICS[name].unit))


def reading_of(snapshot: Snapshot, name: str) -> GpuReading | HostReading | None:
    kind = METRICS[name].kind
    return snapshot.gpu if kind == "gpu" else snapshot.host if kind in ("host", "own") else None


def step_ms_at(steps_per_s: float | None) -> float | None:
    """Return the one length of a step that agrees with this rate: a median need not."""
    return 1000 / steps_per_s if fmt.is_measured(steps_per_s) and steps_per_s else None


def step_value(snapshot: Snapshot, name: str, view: TimeView) -> float | None:
    if view.moment_s is not None:
        return value_at(snapshot.series, name, view.moment_s)
    changed_s = snapshot.markers[-1].at_s if snapshot.markers else 0.0
    return latest(snapshot.series, name, changed_s)


def value_of(snapshot: Snapshot, name: str, view: TimeView) -> float | str | None:
    kind = METRICS[name].kind
    if view.moment_s is None and name in NEWEST:
        newest: float | None = getattr(snapshot, name)
        return newest
    if kind in ("step", "phase") or view.moment_s is not None:
        return step_value(snapshot, name, view)
    source = reading_of(snapshot, name)
    return source.values.get(name) if source else None


def _share(part_ms: float | None, step_ms: float | None) -> float | None:
    return None if part_ms is None or not step_ms else 100 * part_ms / step_ms


def _scaled(snapshot: Snapshot, one: ShownReading) -> ShownReading:
    """Take 100 %, the limit of the device, or a round maximum as the top of the scale."""
    unit = METRICS[one.metric].unit
    if unit == "%" and one.metric != "cpu_pct":
        return one
    limit = _limit(snapshot, one.metric)
    if limit:
        scale = quantity(one.metric, limit)
        has_limit = one.metric in OF_LIMIT and one.value != fmt.ABSENT
        value = joined(one.value, " of ", scale) if has_limit else one.value
        return msgspec.structs.replace(one, top=limit, scale=scale, value=value)
    known = [value for value in one.past if value is not None and value < inf]
    top = nice_ceiling(max(known, default=0.0))
    return msgspec.structs.replace(one, top=top, scale=quantity(one.metric, top), has_limit=False)


def _limit(snapshot: Snapshot, name: str) -> float | None:
    if name == "cpu_pct":
        return 100.0 * snapshot.usable_cores if snapshot.usable_cores else None
    limit = "mem_total_mib" if name.startswith("mem_") else LIMITS.get(name)
    return snapshot.gpu.number(limit) if snapshot.gpu and limit else None


def joined(value: str, between: str, other: str) -> str:
    """Return both values, with a common unit only once: `2.8 of 140.4 GiB`."""
    unit = other.rpartition(" ")[2]
    return f"{value.removesuffix(f' {unit}')}{between}{other}"


def sparklines(
    series: Series, shown: Iterable[ShownReading], columns: int, view: TimeView
) -> Iterator[str]:
    """Leave blank where nothing was measured."""
    time_range = range_of(series, max(columns, 1), view)
    bins = bins_of(series.at_s, time_range) if columns else []
    stretches = [stretch for _, stretch in bins]
    for one in shown:
        line = [" "] * columns
        for (column, _), mean in zip(bins, means(one.past, series.at_s, stretches), strict=True):
            if mean is not None:
                line[column] = level_of(mean / one.top)
        yield "".join(line)
