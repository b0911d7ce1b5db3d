"""Model a step as a schedule whose period is the measured one, and take parts out of it.

What is measured bounds the durations. A host that waits for the device, and one that is merely
ahead of it, look alike from outside: then both schedules are played, and a saving is a range.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from typing import NamedTuple

from gpudash.diagnosis.parts import (
    ALLOCATING,
    BLOCKED,
    COLLECTING,
    COMPILING,
    CORE,
    PARTS,
    ROLLOUT,
    ModelPart,
    Times,
)
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.trace.summary import Summary

AT_WORK = 0.9
"""A device at work for this part of a step is the limit: the rest is within the model's error."""
SAMPLED = 0.8
"""The same without a profile. In 40 recordings the driver's counter read up to 0.15 less."""
WAITED = 0.05
"""Part of a step for which the host waits for batches. Less is the time to hand them over."""
GROWTH = 0.1
"""Of a step: a proof by slowing delays a part as much."""
AHEAD = 3
"""Steps that a host runs ahead at most: where launches queue up, more do not change the period."""
CALL_MS = 0.1
"""What a call takes that asks the driver for memory, or gives it back: in trainings on H100s 0.11
to 0.17 ms on average, 0.03 while the device has nothing to do."""
UNTRACED = Summary(steps=0, step_ms=0.0, on_device=False)


class _Saving(NamedTuple):
    """By how much a step would be shorter, in ms: the least and the most that is possible."""

    low: float
    high: float


class Model(NamedTuple):
    """What may be the schedule of a step."""

    scenarios: tuple[Times, ...]
    works_ms: float = 0.0
    """What the device is known to work; where that fills a step, no gap is left in a schedule."""

    @property
    def step_ms(self) -> float:
        return self.scenarios[0].step

    @property
    def residual(self) -> float:
        """The largest part of the step that a schedule does not explain, in either direction."""
        return max(abs(played_ms(one) / one.step - 1) for one in self.scenarios)

    @lru_cache(maxsize=2 * len(PARTS))  # noqa: B019  # a tuple: nothing else is kept with it
    def without(self, part: ModelPart) -> _Saving:
        saved = [played_ms(one) - played_ms(part.without(one)) for one in self.scenarios]
        return _Saving(max(min(saved), 0.0), max(*saved, 0.0))

    def slope(self, part: ModelPart) -> _Saving:
        """Return by how much a step grows with this part, as a share: 1 where nothing hides it."""
        grown = [grown_by(one, part) for one in self.scenarios]
        return _Saving(min(grown), max(grown))


def model_of(step: RecentStep, *, waits: bool | None = None) -> Model | None:
    """None if too little is measured; `waits` is None if only a profile shows it."""
    if (times := _without_host(step)) is None:
        return None
    works_ms = times.copy + times.communication + times.device
    return Model(tuple(_scenarios(step, times, works_ms, waits=waits)), works_ms)


def played_ms(times: Times) -> float:
    """Return the duration of a step as its schedule has it.

    A host that waits for the device finishes a step with it; else the host runs ahead. A kernel
    does not end before its launch. The period of such a schedule is its largest mean of a cycle
    (Baccelli et al., Synchronization and Linearity, 1992): the host's work, the device's, or the
    way through a step by the number of steps that the host may be ahead.
    """
    alone_ms = launch_alone_ms(times)
    works_ms = times.device + times.communication
    before_ms = times.data + times.beside_launches + alone_ms
    copied_ms = times.copy if times.blocks else 0.0
    launch_ms = times.launch - alone_ms
    host_ms = before_ms + copied_ms + launch_ms
    through_ms = max(before_ms + times.copy + works_ms, host_ms + times.communication)
    through_ms /= 1 if times.waits else AHEAD
    # a copy that blocks the host lies behind all that the device has: only then comes the launch
    device_ms = times.copy + max(times.device, launch_ms * times.blocks) + times.communication
    return max(host_ms, device_ms, through_ms, times.loader)


def grown_by(times: Times, part: ModelPart) -> float:
    delta_ms = GROWTH * times.step
    return (played_ms(part.more(times, delta_ms)) - played_ms(times)) / delta_ms


def launch_alone_ms(times: Times) -> float:
    """Return the launches before which the device has nothing to do."""
    return min(times.alone, times.launch) if times.waits else 0.0


def _scenarios(
    step: RecentStep, times: Times, works_ms: float, *, waits: bool | None
) -> Iterator[Times]:
    """Yield schedules: a host that waits has launched all before the last collective is over."""
    copied_ms = times.copy if times.blocks else 0.0
    rest_ms = times.step - times.data - copied_ms
    idle_ms = max(times.step - times.data - works_ms, 0.0)
    hosts_ms = _host_ms(step, rest_ms, copied_ms, times.beside_launches)
    if times.is_one:
        waits = True
    elif step.profile is not None:
        # calls for memory wait for the device
        waits_ms = _waited_ms(step.profile, copied_ms) + times.allocating
        waits = waits_ms >= WAITED * times.step
    if step.on_gpu and works_ms >= full_share(step) * times.step:
        # the device hides a host that is faster than it, however long that waits to launch
        device_ms = rest_ms + copied_ms - times.copy - times.communication
        filled = times._replace(device=max(device_ms, 0.0))
        waiting, ahead = (
            [_hosted(filled, min(ms, most_ms)) for ms in hosts_ms]
            for most_ms in (works_ms - times.communication, works_ms)
        )
    else:
        most_ms = rest_ms
        if step.on_gpu and step.host_ms is not None:
            most_ms = min(step.host_ms, rest_ms)
        if step.profile is None:  # a wait is known to save at most the work beside launches
            hosts_ms = (0.0,)
        before_ms = min(most_ms, rest_ms - times.communication)
        waiting = [_hosted(times, min(max(ms, idle_ms), before_ms)) for ms in hosts_ms]
        ahead = [_hosted(times, most_ms)]
    if waits is not False:
        yield from map(_waiting, waiting)
    if waits is not True:
        yield from ahead


def _without_host(step: RecentStep) -> Times | None:
    works_ms = _works_ms(step)
    if not step.step_ms or works_ms is None:
        return None
    data_ms = step.starved_ms or 0.0
    copy_ms, exposed_ms = step.copy_ms or 0.0, step.exposed_ms or 0.0
    works_ms = min(max(works_ms, copy_ms + exposed_ms), step.step_ms - data_ms)
    copy_ms, exposed_ms = min(copy_ms, works_ms), min(exposed_ms, max(works_ms - copy_ms, 0.0))
    times = Times(
        step=step.step_ms,
        data=data_ms,
        loader=step.step_ms if _takes_all(step) else 0.0,
        is_inline=step.workers == 0,
        is_one=not step.on_gpu,
        copy=copy_ms,
        blocks=_blocks(step),
        communication=exposed_ms,
    )
    times = _with_owners(step, times, works_ms)
    if not step.on_gpu:
        works_ms = min(works_ms, step.step_ms - data_ms - times.beside_launches)
    return times._replace(device=works_ms - copy_ms - exposed_ms)


def _with_owners(step: RecentStep, times: Times, works_ms: float) -> Times:
    """Divide the host's time beside launches; each owner leaves the rest to the others."""
    traced, idle_ms = step.profile, inf
    waits_ms, rollout_ms = 0.0, step.phases_ms.get("rollout", 0.0)
    if step.on_gpu:
        waits_ms = works_ms
        idle_ms = max(times.step - times.data - works_ms, 0.0)
        if traced is not None:
            waits_ms = (traced.blocked_ms or 0.0) + (traced.copy_call_ms or 0)
    asked_ms = _allocating_ms(step)
    # a rollout may wait for its environment, the driver off the CPU, and the host for the device
    blocked_ms = max(step.owned_ms("blocked") - rollout_ms - asked_ms - waits_ms, 0.0)
    owners_ms = {
        CORE: step.no_core_ms,
        COLLECTING: step.owned_ms("gc"),
        COMPILING: step.owned_ms("compile"),
        ROLLOUT: rollout_ms,
        BLOCKED: blocked_ms,
        ALLOCATING: min(asked_ms, idle_ms),
    }
    left_ms = times.step - times.data
    for part, ms in owners_ms.items():
        times = part.more(times, min(ms, left_ms))
        left_ms -= part.ms(times)
    code_ms = _code_ms(step, works_ms) - times.collecting - times.compiling - blocked_ms - asked_ms
    return times._replace(code=max(min(code_ms, left_ms, idle_ms - times.allocating), 0.0))


def _allocating_ms(step: RecentStep) -> float:
    """Only a profile has the time of a call; its steps may have more of them than usual."""
    traced, counts = step.profile or UNTRACED, step.counts
    if not traced.allocations:
        return CALL_MS * (counts.get("device_allocs", 0.0) + counts.get("device_frees", 0.0))
    each_ms = (traced.allocation_ms or 0.0) / traced.allocations
    return each_ms * counts.get("device_allocs", traced.allocations)


def full_share(step: RecentStep) -> float:
    """Return the part of a step from which on a device that is at work is the limit."""
    return SAMPLED if step.profile is None else AT_WORK


def _hosted(times: Times, host_ms: float) -> Times:
    return times._replace(launch=max(host_ms - times.beside_launches, 0.0))


def _waiting(times: Times) -> Times:
    works_ms = times.copy + times.device + times.communication
    idle_ms = times.step - times.data - times.beside_launches - works_ms
    return times._replace(waits=True, alone=max(idle_ms, 0.0))


def _host_ms(step: RecentStep, rest_ms: float, copy_ms: float, code_ms: float) -> tuple[float, ...]:
    """Return the most and the least work of the host in a step.

    Where it is ahead of the device, launches wait for room. Only a profile shows how long; it
    inflates the host's work, and lacks the wait for the first step.
    """
    most_ms = rest_ms if step.host_ms is None else min(step.host_ms - copy_ms, rest_ms)
    traced = step.profile or UNTRACED
    if traced.host_ms is not None:
        most_ms = min(most_ms, traced.host_ms - (traced.loader_ms or 0.0) - copy_ms)
    most_ms = max(most_ms - _waited_ms(traced, copy_ms), 0.0)
    calls_ms = sum(one.self_ms for one in traced.operators)
    return most_ms, min(code_ms + calls_ms, most_ms)


def _waited_ms(traced: Summary, copy_ms: float) -> float:
    """Include copies from memory that is not pinned, which wait for earlier work, too."""
    in_copies_ms = (traced.copy_call_ms or 0.0) - copy_ms if copy_ms else 0.0
    return (traced.blocked_ms or 0.0) + max(in_copies_ms, 0.0)


def _takes_all(step: RecentStep) -> bool:
    """If the host takes each batch at once, loader workers set the pace: on cores of their own."""
    may_wait = step.on_gpu and step.workers != 0
    return may_wait and (step.data_ms or 0.0) >= WAITED * (step.step_ms or inf)


def _blocks(step: RecentStep) -> bool:
    if step.profile is None:
        return step.pinned is False
    return any(one.is_pinned is False for one in step.copies)


def _works_ms(step: RecentStep) -> float | None:
    if step.busy_ms is not None:
        return step.busy_ms
    share_pct, step_ms = step.at_work_pct, step.step_ms or 0.0
    if share_pct is None:
        return None
    works_ms = step_ms * share_pct / 100
    if step.on_gpu and step.host_ms is not None:
        if step.host_ms + (step.data_ms or 0.0) < AT_WORK * step_ms:
            # no launch was late, so nothing but work lies between the device's events
            works_ms = step.computing_ms or 0.0
        elif step.gpu_util_pct is None and step.host_ms >= AT_WORK * step_ms:
            # nothing shows whether the device works or waits between two events
            works_ms = (step_ms - (step.starved_ms or 0.0) + (step.copy_alone_ms or 0.0)) / 2
    return works_ms + (step.communication_ms or 0.0)


def _code_ms(step: RecentStep, works_ms: float) -> float:
    """Return the host's time in the script's own code, as far as it is known.

    All of the host waits for a core alike. On a GPU the code may wait for that: only a profile
    shows that the device has not worked meanwhile.
    """
    known = (step.traced_code_ms, step.own_code_ms, step.phases_ms.get("your_code", 0.0))
    code_ms = next(ms for ms in known if ms is not None)
    code_ms *= 1 - step.no_core_ms / (step.step_ms or inf)
    is_waiting = step.on_gpu and step.traced_code_ms is None
    return code_ms - works_ms if is_waiting else code_ms
