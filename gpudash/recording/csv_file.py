"""Format the CSV: one row per interval and GPU, or per interval and rank.

Every row is written with one call, so a killed process loses no written row. A last line without
its line end is torn, and readers leave it out. An empty cell means "not measured". Numbers are in
plain decimal notation.
"""

import csv
import io
from collections import ChainMap
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Literal

import msgspec

from gpudash.metrics import METRICS, Metric
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.recording.rank_interval import RankInterval


def cell(value: Any, digits: int | Literal["text"] | None) -> str:
    """Return a value as text, with `digits` decimals if it is a number; empty for None.

    A dictionary becomes `name=value;name=value`.
    """
    if isinstance(value, dict):
        return ";".join(f"{name}={cell(one, digits)}" for name, one in value.items())
    if isinstance(value, float | int) and isinstance(digits, int):
        # + 0.0 makes -0.0 read 0.0
        return f"{round(value, digits) + 0.0:.{digits}f}" if isfinite(value) else ""
    return "" if value is None else str(value)


def columns() -> dict[str, Metric]:
    """Return the columns and their metrics in order; new ones are only ever appended."""
    return {name: metric for name, metric in METRICS.items() if metric.csv is not None}


def cells(interval: Interval, origin: Origin) -> list[list[str]]:
    """Return the rows of an interval: one for each rank, or each GPU, or one without any."""
    time_s = interval.ended_s - origin.began_s
    row = {
        "time_s": time_s,
        "wall_time_utc": wall_time(origin.began_utc + timedelta(seconds=time_s)),
        "workload": interval.workload,
        "segment": interval.segment,
        "batch_size": interval.settings.get("batch_size"),
        "levers": interval.settings,
        "world_size": interval.world_size,
    }
    length_s = interval.ended_s - interval.began_s
    rates = {"rank": 0, "steps_per_s": interval.steps_per_s, **_rates(interval, length_s)}
    phases = {f"{name}_ms": taken_ms for name, taken_ms in interval.phases_ms.items()}
    first = ChainMap(rates, row, interval.host, msgspec.structs.asdict(interval), phases)
    gpus = {gpu.uuid: gpu for gpu in interval.gpus}
    found = [
        ChainMap(_of_gpu(gpus.get(one.gpu_uuid or "")), _of_rank(one, length_s), row)
        if one.rank
        else first.new_child(_of_gpu(gpus.get(one.gpu_uuid or "")))
        for one in interval.ranks
    ]
    return [
        [cell(one.get(name), column.csv) for name, column in columns().items()]
        for one in found or (first.new_child(_of_gpu(gpu)) for gpu in interval.gpus or (None,))
    ]


def _of_rank(one: RankInterval, length_s: float) -> dict[str, Any]:
    """Return the cells of a rank other than 0; rank 0's row has the job's steps."""
    return {
        "rank": one.rank,
        "step": one.step,
        **_rates(one, length_s),
        "step_ms_p50": one.step_ms_p50,
        "step_ms_p95": one.step_ms_p95,
        "loss": one.loss,
        **one.host,
        **one.times_ms,
        **{f"{name}_ms": taken_ms for name, taken_ms in one.phases_ms.items()},
    }


def _rates(one: Interval | RankInterval, length_s: float) -> dict[str, float | None]:
    counts = {"samples_per_s": one.samples, "tokens_per_s": one.tokens}
    return {name: None if n is None else n / length_s for name, n in counts.items()}


def _of_gpu(gpu: GpuInterval | None) -> dict[str, Any]:
    return {"gpu_index": gpu.index, "gpu_uuid": gpu.uuid} | gpu.values if gpu else {}


def wall_time(moment: datetime) -> str:
    """Return a moment as ISO 8601 in UTC with milliseconds and `Z`."""
    rounded = moment.astimezone(UTC) + timedelta(microseconds=500)  # isoformat truncates
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def csv_lines(rows: Iterable[Iterable[str]]) -> bytes:
    """Return the rows as complete CSV lines."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()
