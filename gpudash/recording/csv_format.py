"""Format rows as CSV or JSON: one per interval and GPU, or per interval and rank.

Every row is written with one call, so a killed process loses no written row. Readers leave out a
torn last line. An empty cell means "not measured".
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from gpudash.json_input import LARGEST
from gpudash.metrics import METRICS, PAIRS_DIGITS, Column, Metric
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.recording.rank_steps import RankSteps


def cell(value: Any, holds: Column | None) -> str:
    """Return an empty text for None and for what is not finite."""
    if isinstance(value, dict):
        return ";".join(f"{name}={cell(one, PAIRS_DIGITS)}" for name, one in value.items())
    digits = 0 if holds == "whole" else holds
    if isinstance(value, float | int) and isinstance(digits, int):
        # + 0.0 makes -0.0 read 0.0
        return f"{round(value, digits) + 0.0:.{digits}f}" if isfinite(value) else ""
    return "" if value is None else str(value)


def columns() -> dict[str, Metric]:
    """Return the columns in order; new ones are only ever appended."""
    return {name: metric for name, metric in METRICS.items() if metric.csv is not None}


def cells(interval: Interval, origin: Origin) -> list[list[str]]:
    row, named = of_job(interval, origin), columns()
    gpus = {gpu.uuid: gpu for gpu in interval.gpus}
    single = interval.gpus or (None,)  # a single rank has a row for each GPU
    return [
        [
            # what all ranks share stands in the first row alone
            cell(None if rank.rank and of.over_ranks == "one" else found.get(name), of.csv)
            for name, of in named.items()
        ]
        for rank in interval.ranks
        for gpu in (single if len(interval.ranks) == 1 else (gpus.get(rank.gpu_uuid or ""),))
        for found in (row | of_rank(rank, interval.rated_s) | of_gpu(gpu),)
    ]


def of_job(interval: Interval, origin: Origin) -> dict[str, Any]:
    time_s = interval.ended_s - origin.began_s
    return {
        "time_s": time_s,
        "wall_time_utc": wall_time(origin.began_utc + timedelta(seconds=time_s)),
        "workload": interval.workload,
        "segment": interval.segment,
        "batch_size": interval.settings.get("batch_size"),
        "levers": interval.settings,
        "train_s": interval.train_s,
        "world_size": interval.world_size,
    }


def of_rank(rank: RankSteps, rated_s: float | None) -> dict[str, Any]:
    return rank.values | {
        "rank": rank.rank,
        "step": rank.step,
        "steps": rank.steps,
        "untimed_steps": rank.untimed,
        "transform_ms": rank.transform_ms,
        **{
            name: None if count is None or rated_s is None else count / rated_s
            for name, count in counts_of(rank).items()
        },
    }


def counts_of(rank: RankSteps) -> dict[str, int | None]:
    return {"steps_per_s": rank.steps, "samples_per_s": rank.samples, "tokens_per_s": rank.tokens}


def of_gpu(gpu: GpuInterval | None) -> dict[str, Any]:
    return {"gpu_index": gpu.index, "gpu_uuid": gpu.uuid} | gpu.values if gpu else {}


def wall_time(moment: datetime) -> str:
    """Return ISO 8601 in UTC with milliseconds and `Z`."""
    rounded = moment.astimezone(UTC) + timedelta(microseconds=500)  # isoformat truncates
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def csv_lines(rows: Iterable[Iterable[str]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()


def json_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def objects(rows: Iterable[Iterable[str]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        held = zip(columns().items(), row, strict=True)
        yield {name: _value(cell, of.csv) for (name, of), cell in held}


def _value(cell: str, holds: Column | None) -> str | float | None:
    if not cell or holds in ("text", "pairs"):
        return cell or None
    with suppress(ValueError):  # in a log of another origin
        number = int(cell) if holds == "whole" else float(cell)
        if abs(number) < LARGEST:
            return number
    return None
