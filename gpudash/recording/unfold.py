"""Convert an interval back to messages, so that the views show a recording like a training."""

from collections.abc import Iterator, Mapping

import msgspec

from gpudash.metrics import METRICS
from gpudash.protocol.envelope import Event
from gpudash.protocol.readings import GpuReading, HostReading, Reading
from gpudash.protocol.training import Progress, Step, Untimed
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import Interval
from gpudash.recording.rank_steps import RankSteps

BESIDE_S = 1e-6
"""Distance from the borders at which an interval's messages lie."""


def unfold(
    interval: Interval, gpus: Mapping[str, GpuReading], counters: dict[str, float]
) -> Iterator[tuple[int, Event | Reading]]:
    """Yield rank and message: those of the ranks, rank 0's last; then the GPUs'.

    `gpus` has names and total memory by UUID. This call adds to `counters`: the energy so far.
    """
    at_s = max(interval.ended_s - BESIDE_S, (interval.began_s + interval.ended_s) / 2)
    for rank in reversed(interval.ranks):
        if rank.steps or rank.instruments_ms is not None:
            yield rank.rank, _progress(interval, rank)
        if host := _of_processes(rank):
            yield rank.rank, HostReading(at_s=at_s, values=host)
    metered = {
        gpu.uuid: gpu.values["energy_j"] for gpu in interval.gpus if "energy_j" in gpu.values
    }
    for uuid in counters.keys() - metered.keys():
        del counters[uuid]
    for uuid, spent_j in metered.items():
        counters[uuid] = counters[uuid] + float(spent_j) if uuid in counters else 0.0
    for gpu in interval.gpus:
        if gpu.values:
            yield 0, _gpu(at_s, gpu, gpus.get(gpu.uuid), counters)


def _progress(interval: Interval, rank: RankSteps) -> Progress:
    loss, skipped = (rank.values.get(name) for name in ("loss", "skipped_samples"))
    return Progress(
        until_s=interval.ended_s,
        steps=tuple(_steps(interval, rank)),
        total_steps=rank.step,
        total_samples=rank.total_samples,
        loss=loss if isinstance(loss, float) else None,
        loss_step=rank.step,
        transform_ms=rank.transform_ms,
        skipped_samples=int(skipped or 0),
        instruments_ms=rank.instruments_ms or 0.0,
        untimed=tuple(_untimed(interval, rank)),
    )


def _untimed(interval: Interval, rank: RankSteps) -> Iterator[Untimed]:
    if rank.untimed:
        yield Untimed(
            step=rank.step - rank.timed,
            segment=interval.segment,
            finished_s=interval.began_s + BESIDE_S,
            count=rank.untimed,
            samples=_share(rank.samples, 0, rank.untimed, rank.steps),
            tokens=_share(rank.tokens, 0, rank.untimed, rank.steps),
        )


def _steps(interval: Interval, rank: RankSteps) -> Iterator[Step]:
    times = [one for burst in rank.bursts for one in burst.step_times]
    mean_ms = sum(ms * count for ms, count in times) / max(rank.timed, 1)
    values = _of_steps(rank)
    done = before = rank.untimed
    for burst in rank.bursts:
        finished_s = burst.began_s
        for ms, count in burst.step_times:
            stretched = ms / mean_ms if mean_ms else 1.0
            finished_s += ms * count / 1e3
            done += count
            ends_row = finished_s > interval.ended_s - BESIDE_S
            yield Step(
                step=rank.step - rank.steps + done,
                segment=interval.segment,
                samples=_share(rank.samples, before, done, rank.steps),
                tokens=_share(rank.tokens, before, done, rank.steps),
                finished_s=interval.ended_s
                if ends_row
                else max(finished_s, interval.began_s + BESIDE_S),
                step_ms=ms,
                count=count,
                values={name: value * stretched for name, value in values.items()},
                parts_ms={
                    name: tuple(ms * stretched for ms in parts)
                    for name, parts in rank.parts_ms.items()
                },
            )
            before = done


def _of_steps(rank: RankSteps) -> dict[str, float]:
    return {
        name: value
        for name, value in rank.values.items()
        if not isinstance(value, str) and (name not in METRICS or METRICS[name].in_steps)
    }


def _of_processes(rank: RankSteps) -> dict[str, float | str]:
    return {
        name: value
        for name, value in rank.values.items()
        if name in METRICS and METRICS[name].kind == "host"
    }


def _share(of_all: int | None, before: int, done: int, steps: int) -> int | None:
    """Return the whole number that the steps from `before` to `done` get of a total."""
    if of_all is None:
        return None
    return round(of_all * done / max(steps, 1)) - round(of_all * before / max(steps, 1))


def _gpu(
    at_s: float, gpu: GpuInterval, known: GpuReading | None, counters: Mapping[str, float]
) -> GpuReading:
    known = known or GpuReading(at_s=at_s, index=gpu.index, uuid=gpu.uuid, name=gpu.uuid)
    values = known.values | gpu.values
    energy_j = counters.get(gpu.uuid)
    if energy_j is not None:
        values["energy_j"] = energy_j
    return msgspec.structs.replace(
        known,
        at_s=at_s,
        index=gpu.index,
        values=values,
        activity_since_s=None,
        energy_at_s=None if energy_j is None else at_s,
    )
