"""Name what limits a training: the part of a step that binds, and why it is slow.

Causes outside the step come first: pauses, cores that other jobs have, a slow rank. A device that
is at work nearly all the time is the limit; else it is the part that leaves it idle longest.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from gpudash.diagnosis.model import Model, full_share
from gpudash.diagnosis.parts import CODE, COMMUNICATION, COPY, DATA, DEVICE, LAUNCH, WAIT, Part
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.metrics import CORE_WAIT_WARNS_PCT
from gpudash.protocol.session import Straggler

Limit: TypeAlias = Literal[
    "asides",  # evaluation and checkpoints
    "cores",  # other jobs use them
    "straggler",  # the others wait for one rank
    "shared_gpu",  # processes of others have it for some of the time
    "data",
    "copy",
    "communication",
    "sync",
    "launch",
    "own_code",
    "host",  # launching or waiting: only a profile can distinguish them
    "throttled",
    "memory",
    "compute",
    "gpu",  # where it is not measured what the GPU is busy with
    "cpu",
    "none",  # no single thing
    "unknown",
]
"""What limits a training."""

ASIDES_PCT = 50.0
"""Percent of the time in evaluation and checkpoints: the larger part."""
STRAGGLER_PCT = 1.0
"""The others' wait for a named rank, in percent of the step."""
IDLE = 0.25
"""Part of a step in which a device idles for want of launches before they are the limit."""
LEAST: dict[Part, float] = {
    DATA: 0.1,
    COPY: 0.2,
    COMMUNICATION: 0.1,
    WAIT: 0.1,
    CODE: IDLE,
    LAUNCH: IDLE,
}
"""Parts of a step that leave the device idle, and what each has to save to be the limit. Other
tools call a wait of 10 % a warning. A copy's phase includes the time until its launch."""
LIMITS: dict[Part, Limit] = {
    DATA: "data",
    COPY: "copy",
    COMMUNICATION: "communication",
    WAIT: "sync",
    CODE: "own_code",
    LAUNCH: "launch",
}
LABELS: dict[Part, str] = {
    DATA: "the step waits for data",
    COPY: "a copy runs, and nothing beside it",
    COMMUNICATION: "the step only communicates",
    WAIT: "saved without host waits",
    CODE: "your code runs, and the device idles",
    LAUNCH: "the device has no work launched",
}
THROTTLED_PCT = 30.0
"""Percent of the clock. A power cap costs large matmuls some of it by design."""
SHARED_PCT = CORE_WAIT_WARNS_PCT
"""Percent of the time in which others have work on the device: as for cores that others have."""
DRAM = 0.6
"""Share of the memory's peak while SMs are active: Nsight Compute calls a unit a kernel's limit
from 60 % on."""
CPU_PCT = 50.0
"""The larger part of a step."""


class Cause(NamedTuple):
    """What may limit a training, and how much of a step it takes."""

    limit: Limit
    label: str
    pct: float | None
    """None if it was not measured."""
    from_pct: float

    @property
    def binds(self) -> bool:
        """Whether it takes enough to be the limit."""
        return self.pct is not None and self.pct >= self.from_pct


def causes(model: Model | None, step: RecentStep, straggler: Straggler | None) -> tuple[Cause, ...]:
    within = _on_device if step.on_gpu else _on_cpu
    return (*_outside(step, straggler), *(within(model, step) if model is not None else ()))


def limit_of(found: tuple[Cause, ...]) -> Limit:
    first = next((one.limit for one in found if one.binds), None)
    if first is not None:
        return first
    is_measured = any(one.pct is not None for one in found if one.limit not in OUTSIDE)
    return "none" if is_measured else "unknown"


OUTSIDE: frozenset[Limit] = frozenset({"asides", "cores", "straggler", "shared_gpu"})


def _outside(step: RecentStep, straggler: Straggler | None) -> Iterator[Cause]:
    yield Cause("asides", "evaluation and checkpoints", step.aside_pct, ASIDES_PCT)
    cores = Cause("cores", "the training waits for a core", step.core_wait_pct, CORE_WAIT_WARNS_PCT)
    waits_pct = None if straggler is None else step.share_pct(straggler.others_wait_ms)
    rank = Cause("straggler", "the others wait for a rank", waits_pct, STRAGGLER_PCT)
    yield from sorted((cores, rank), key=lambda one: -(one.pct or 0.0))


def _on_device(model: Model, step: RecentStep) -> Iterator[Cause]:
    times, whole_ms = model.scenarios[0], model.step_ms
    fills = {part: part.ms(times) for part in (COPY, COMMUNICATION, DEVICE)}
    at_work_ms = sum(fills.values())
    worked_pct = 100 * at_work_ms / whole_ms
    if step.at_work_pct is not None:  # a full step's model has no gaps
        worked_pct = min(worked_pct, step.at_work_pct + 100 * times.communication / whole_ms)
    full_pct = 100 * full_share(step)
    is_full = 100 * at_work_ms >= full_pct * whole_ms
    if is_full:
        longest = max(fills, key=lambda part: fills[part])
        limit = _why_slow(step) if longest == DEVICE else LIMITS[longest]
        yield Cause(limit, "the device is at work", max(worked_pct, full_pct), full_pct)
    saved = {part: model.without(part) for part in LEAST}
    order = sorted(LEAST, key=lambda part: -saved[part].low)
    if saved[WAIT].low >= LEAST[WAIT] * whole_ms:  # it goes without less work
        order = [WAIT, *(part for part in order if part != WAIT)]
    for part in order:
        ms = saved[part].low
        if part == LAUNCH and step.idle_ms is not None:
            ms = min(ms, step.idle_ms)  # it may idle for another stream
        limit = LIMITS[part]
        if part == LAUNCH and saved[WAIT].high > ms - 1e-6 and step.profile is None:
            limit = "host"
        yield Cause(limit, LABELS[part], 100 * ms / whole_ms, 100 * LEAST[part])
    if not is_full:
        yield Cause(_why_slow(step), "the device is at work", worked_pct, full_pct)


def _why_slow(step: RecentStep) -> Limit:
    active, dram = step.sm_active_pct, step.dram_active_pct
    if (step.others_pct or 0.0) >= SHARED_PCT:  # what the counters say is theirs, too
        return "shared_gpu"
    if (step.throttled_pct or 0.0) >= THROTTLED_PCT:
        return "throttled"
    if not active or dram is None:
        return "gpu"
    is_memory = dram >= DRAM * active and dram > (step.tensor_active_pct or 0.0)
    return "memory" if is_memory else "compute"


def _on_cpu(model: Model, step: RecentStep) -> Iterator[Cause]:
    times, whole_ms = model.scenarios[0], model.step_ms
    data_pct = max(100 * times.data / whole_ms, step.taken_pct or 0.0)
    parts = (
        Cause(
            "communication", "the step only communicates", 100 * times.communication / whole_ms, 10
        ),
        Cause("data", "the step mainly waits for data", data_pct, 10.0),
        Cause("own_code", "your code", 100 * times.code / whole_ms, CPU_PCT),
        Cause("cpu", "the CPU computes", 100 * times.device / whole_ms, CPU_PCT),
    )
    yield parts[0]
    yield from sorted(parts[1:], key=lambda one: -(one.pct or 0.0))
