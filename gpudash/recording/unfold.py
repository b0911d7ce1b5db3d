"""Convert an interval back to messages, as a worker and a sampler could have sent them.

So the views show a recording like a training. No I/O, no clock.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpudash.protocol import Event, GpuReading, HostReading, Progress, Reading, Step
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import MEANS, Interval

BESIDE_S = 1e-6
"""Distance from the borders at which an interval's messages lie."""


def unfold(
    interval: Interval, gpus: Mapping[str, GpuReading] | None = None
) -> tuple[Event | Reading, ...]:
    """Return the interval's Progress, then a reading of each GPU and of the host at its end.

    Without a worker's report there is no Progress. `gpus` has a reading of each GPU by UUID, for
    values that an interval lacks: name and total memory. Energy, a difference of two counter
    readings, is left out.
    """
    progress = Progress(
        until_s=interval.ended_s,
        steps=tuple(_steps(interval)),
        total_steps=interval.step,
        total_samples=interval.total_samples,
        loss=interval.loss,
        loss_step=interval.step,
        transform_ms=interval.transform_ms,
        skipped_samples=interval.skipped_samples or 0,
        instruments_ms=interval.instruments_ms or 0.0,
    )
    at_s = _read_s(interval)
    readings = [_gpu(at_s, gpu, (gpus or {}).get(gpu.uuid)) for gpu in interval.gpus]
    host = HostReading(at_s=at_s, values=interval.host)
    silent = interval.instruments_ms is None and not interval.steps
    return (*(() if silent else (progress,)), *readings, host)


def unfold_ranks(interval: Interval) -> Iterator[tuple[int, Progress | HostReading]]:
    """Yield rank and messages of every rank but 0; its steps are one mean step with a count."""
    for one in interval.ranks:
        if one.rank:
            step = Step(
                step=one.step,
                segment=interval.segment,
                samples=one.samples,
                tokens=one.tokens,
                finished_s=interval.ended_s,
                step_ms=one.step_ms_p50 or 0.0,
                data_ms=one.times_ms.get("data_ms"),
                host_ms=one.times_ms.get("host_ms"),
                device_ms=one.times_ms.get("device_ms"),
                phases_ms=one.phases_ms or None,
                parts_ms=one.parts_ms or None,
                count=one.steps,
            )
            progress = Progress(
                until_s=interval.ended_s,
                steps=(step,) if one.steps else (),
                total_steps=one.step,
                total_samples=one.total_samples,
                loss=one.loss,
            )
            yield one.rank, progress
            if one.host:
                yield one.rank, HostReading(at_s=_read_s(interval), values=one.host)


def _read_s(interval: Interval) -> float:
    """Return the time given to the interval's readings."""
    return max(interval.ended_s - BESIDE_S, (interval.began_s + interval.ended_s) / 2)


def _steps(interval: Interval) -> Iterator[Step]:
    """Yield the bins back to back, each as the row's mean step scaled to the bin's step time."""
    times = [one for burst in interval.bursts for one in burst.step_times]
    mean_ms = sum(ms * count for ms, count in times) / max(interval.steps, 1)
    done = before = 0
    for burst in interval.bursts:
        finished_s = burst.began_s
        for ms, count in burst.step_times:
            stretched = ms / mean_ms if mean_ms else 1.0
            finished_s += ms * count / 1e3
            done += count
            ends_row = finished_s > interval.ended_s - BESIDE_S
            yield Step(
                step=interval.step - interval.steps + done,
                segment=interval.segment,
                samples=_share(interval.samples, before, done, interval.steps),
                tokens=_share(interval.tokens, before, done, interval.steps),
                finished_s=interval.ended_s
                if ends_row
                else max(finished_s, interval.began_s + BESIDE_S),
                step_ms=ms,
                count=count,
                **_means(interval, stretched),
            )
            before = done


def _share(of_all: int | None, before: int, done: int, steps: int) -> int | None:
    """Return the whole number that the steps from `before` to `done` get of a total."""
    if of_all is None:
        return None
    return round(of_all * done / max(steps, 1)) - round(of_all * before / max(steps, 1))


def _means(interval: Interval, stretched: float) -> dict[str, Any]:
    means = {name: getattr(interval, name) for name in MEANS}
    phases_ms = {name: ms * stretched for name, ms in interval.phases_ms.items()}
    parts_ms = {
        name: tuple(ms * stretched for ms in parts) for name, parts in interval.parts_ms.items()
    }
    known = {name: ms * stretched for name, ms in means.items() if ms is not None}
    return {"phases_ms": phases_ms or None, "parts_ms": parts_ms or None, **known}


def _gpu(at_s: float, gpu: GpuInterval, known: GpuReading | None) -> GpuReading:
    known = known or GpuReading(at_s=at_s, index=gpu.index, uuid=gpu.uuid, name=gpu.uuid)
    values = known.values | gpu.values
    values.pop("energy_j", None)
    return msgspec.structs.replace(
        known, at_s=at_s, index=gpu.index, values=values, activity_since_s=None, energy_at_s=None
    )
