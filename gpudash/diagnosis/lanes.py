"""Lay out a step as lanes, one for each stream and one for the host."""

from collections.abc import Sequence

from msgspec.structs import replace

from gpudash.diagnosis.recent_step import RecentStep
from gpudash.metrics import METRICS
from gpudash.protocol.answer import Lane, Part
from gpudash.snapshot import Snapshot

SHORT = {"forward": "fwd", "backward": "bwd", "optimizer": "opt", "your code": "code"}
"""Short labels of phases; other labels are cut to their first letters."""


def lanes_of(snapshot: Snapshot, step: RecentStep) -> tuple[Lane, ...]:
    step_ms = step.step_ms
    if not step_ms:
        return ()
    prepare, train = _phases(snapshot, step, "prepare"), _phases(snapshot, step, "train")
    data = _part("data wait", "data", step.data_ms, "fill-0")
    if not step.on_gpu:
        return (lane("CPU", (*data, *prepare, *train), step_ms, "other"),)
    lanes: list[Lane] = []
    if step.overlap_ms is not None and prepare:
        named = (("train", train), (prepares(snapshot, step), prepare))
        lanes = [lane(name, parts, step_ms, "idle") for name, parts in named]
    elif prepare or train:
        lanes = [lane("GPU", (*prepare, *train), step_ms, "idle")]
    host = (*_part("busy", "busy", step.host_ms, "fill-host"), *data)
    if host:
        rest = "ahead · data 0" if step.data_ms == 0 else "ahead"
        lanes.append(lane("host", host, step_ms, rest))
    return tuple(lanes)


def lane(name: str, parts: Sequence[Part], step_ms: float, rest: str) -> Lane:
    """Shorten parts that exceed the step: phases are not measured in all steps."""
    whole = Lane(name, tuple(parts), rest, 0.0)
    total_ms = sum(part.ms for part in parts)
    if total_ms > step_ms:
        return scaled(whole, step_ms / total_ms)
    return replace(whole, rest_ms=step_ms - total_ms)


def scaled(lane: Lane, times: float) -> Lane:
    """Return the lane of a step that takes so many times as long; the shares stay."""
    parts = tuple(replace(part, ms=part.ms * times) for part in lane.parts)
    return replace(lane, parts=parts, rest_ms=lane.rest_ms * times)


def _phases(snapshot: Snapshot, step: RecentStep, lane: str) -> list[Part]:
    return [
        Part(phase.label, short, ms, f"fill-{hue}")
        for index, phase in enumerate(snapshot.phases)
        if phase.lane == lane
        for ms in (step.phases_ms.get(phase.name, 0.0),)
        for hue, short in (look(phase.name, phase.label, index),)
        if ms > 0
    ]


def look(name: str, label: str, index: int) -> tuple[int, str]:
    metric = METRICS.get(f"{name}_ms")
    hue = metric.hue if metric is not None and metric.hue is not None else 1 + index % 6
    return hue, SHORT.get(label) or (label if len(label) <= len("copy") else label[:3])


def _part(label: str, short: str, ms: float | None, ink: str) -> tuple[Part, ...]:
    return (Part(label, short, ms, ink),) if ms else ()


def prepares(snapshot: Snapshot, step: RecentStep) -> str:
    labels = [
        phase.label
        for phase in snapshot.phases
        if phase.lane == "prepare" and step.phases_ms.get(phase.name)
    ]
    return labels[-1] if labels else "prepare"
