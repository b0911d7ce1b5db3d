"""The steps of several ranks in blocks of about a second, a block being the same steps on each.

Steps are told apart by their number, so no clock of one machine is compared with another's.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil, fsum
from statistics import covariance, median

import msgspec

from gpudash.protocol import Step

BLOCK_S = 1.0
FEWEST_STEPS = 4
"""Of a block, where steps are slow."""
MOST_SAMPLES = 64
"""Of a rank in a block: more would only cost memory."""
ODD = 2.0
"""A step so many times as long as usual is left out, on every rank: a checkpoint, a compilation."""
WAIT = "communication"
"""The phase in which a rank waits for the others, …"""
BESIDE = "backward"
"""… and the one that collectives run beside. There they slow down what computes, above all while
they wait: on two H200s, of 0.42 ms that one rank was late in its forward pass, the other one spent
0.37 in its backward pass and 0.03 in `WAIT` (benchmarks/RESULTS.md)."""
REST = ""
"""The part of a step that is in no phase: the device had nothing to do."""


class RankMeans(msgspec.Struct, frozen=True, gc=False):
    """What a step of the block takes on one rank, in ms."""

    own_ms: float
    """Without its waits in the collectives."""
    own_error_ms: float
    """How sure that mean is."""
    wait_ms: float
    least_wait_ms: float
    """In the step in which it was the last."""
    apart_ms: float
    """Without its waits and without `BESIDE`: no other rank has a part in it."""
    phases_ms: dict[str, float]
    """Without `WAIT`, with `REST`."""
    beside_ms: tuple[float, ...]
    """What it takes to the end of each part of `BESIDE`."""
    data_ms: float
    host_ms: float
    own_deviation_ms: float
    """From step to step, …"""
    by_work_ms: float
    """… and what of it goes with the work of the step."""
    work: float | None
    """Tokens, or samples where no tokens are known."""


class Block(msgspec.Struct, frozen=True):
    """The same steps on all ranks that have told of them."""

    step_ms: float
    ranks: dict[int, RankMeans]
    late_ms: dict[int, float]
    """By how much a rank is behind the others, at the end of the part in which it is most so."""
    beside_ms: dict[int, float]
    """What of that comes about in `BESIDE`; never negative."""
    data_ms: dict[int, float]
    """By how much it waits longer for data than the others."""
    host_ms: dict[int, float]
    """By how much longer its host is busy, as far as it has less time left: a host that never gets
    ahead of its GPU waits in a launch for what a wait for data leaves of the step."""


class SameSteps:
    """Sorts the steps of all ranks into blocks; holds those of two blocks at most."""

    def __init__(self) -> None:
        self._size = 0  # steps in a block
        self._newest = -1
        self._open: dict[int, dict[int, list[Step]]] = {}

    def add(self, rank: int, step: Step) -> Block | None:
        """Take a step; return the newest block that is complete by it."""
        if step.phases_ms is None or WAIT not in step.phases_ms:
            return None
        self._size = self._size or _steps_in_block(step.step_ms)
        block, number = None, step.step // self._size
        if number > self._newest:
            while (old := min(self._open, default=number)) < number - 1:
                block = self._closed(self._open.pop(old).items()) or block
            number = step.step // self._size  # may be another by now
            self._newest = number
        if number >= self._newest - 1:
            samples = self._open.setdefault(number, {}).setdefault(rank, [])
            if len(samples) < MOST_SAMPLES:
                samples.append(step)
        return block

    def _closed(self, steps_of: Iterable[tuple[int, Sequence[Step]]]) -> Block | None:
        told = dict(steps_of)
        usual_ms = median(step.step_ms for steps in told.values() for step in steps)
        wanted = _steps_in_block(usual_ms)
        if not self._size / 2 <= wanted <= self._size * 2:  # steps are faster, or slower, than once
            self._size = wanted
            self._open.clear()
            return None
        usual = (
            (rank, [step for step in steps if step.step_ms < ODD * usual_ms])
            for rank, steps in told.items()
        )
        ranks = {rank: _means(steps) for rank, steps in usual if len(steps) > 1}
        if len(ranks) < 2:
            return None
        apart = over_others({rank: one.apart_ms for rank, one in ranks.items()})
        beside = _late_beside(ranks)
        busy = over_others({rank: one.host_ms for rank, one in ranks.items()})
        taken = over_others({rank: one.host_ms + one.data_ms for rank, one in ranks.items()})
        return Block(
            step_ms=usual_ms,
            ranks=ranks,
            late_ms={rank: ms + beside[rank] for rank, ms in apart.items()},
            beside_ms=beside,
            data_ms=over_others({rank: one.data_ms for rank, one in ranks.items()}),
            host_ms={rank: min(ms, taken[rank]) for rank, ms in busy.items()},
        )


def over_others(values: Mapping[int, float]) -> dict[int, float]:
    """Return how much larger each value is than the median of all others; of two values at least.

    Sorted once: leaving one out only moves the middle by a place.
    """
    ordered = sorted(values.items(), key=lambda one: one[1])
    middle = {(len(ordered) - 2) // 2, (len(ordered) - 1) // 2}
    return {
        rank: value - fsum(ordered[at + (place <= at)][1] for at in middle) / len(middle)
        for place, (rank, value) in enumerate(ordered)
    }


def _late_beside(ranks: Mapping[int, RankMeans]) -> dict[int, float]:
    """Return by how much each rank is late in `BESIDE` where it is most so; 0 where it never is.

    A rank that is late there has caught up by the end, or nearly so: those that wait for it compute
    more slowly meanwhile, and it need not wait for them.
    """
    cut_alike = len({len(one.beside_ms) for one in ranks.values()}) == 1
    first = next(iter(ranks.values()))
    latest = dict.fromkeys(ranks, 0.0)
    for end in range(-len(first.beside_ms) if cut_alike else -1, 0):
        late = over_others({rank: one.beside_ms[end] for rank, one in ranks.items()})
        latest = {rank: max(ms, late[rank]) for rank, ms in latest.items()}
    return latest


def _steps_in_block(step_ms: float) -> int:
    return max(ceil(BLOCK_S * 1e3 / max(step_ms, 1e-3)), FEWEST_STEPS)


def _means(steps: Sequence[Step]) -> RankMeans:
    count = len(steps)
    sums: dict[str, float] = {}
    for step in steps:
        for name, ms in (step.phases_ms or {}).items():
            sums[name] = sums.get(name, 0.0) + ms
    step_ms = fsum(step.step_ms for step in steps) / count
    means = {name: total / count for name, total in sums.items()}
    overlap_ms = means.pop("overlap", 0.0)
    rest_ms = step_ms - sum(means.values()) + overlap_ms
    wait_ms = means.pop(WAIT)
    waits_ms = [(step.phases_ms or {}).get(WAIT, 0.0) for step in steps]
    own_ms = [step.step_ms - ms for step, ms in zip(steps, waits_ms, strict=True)]
    beside_ms = _beside(steps)
    work = _work(steps)
    own_deviation_ms = covariance(own_ms, own_ms) ** 0.5
    work_deviation = covariance(work, work) ** 0.5 if work else 0.0
    return RankMeans(
        own_ms=step_ms - wait_ms,
        own_error_ms=own_deviation_ms / count**0.5,
        wait_ms=wait_ms,
        least_wait_ms=min(waits_ms),
        apart_ms=step_ms - wait_ms - beside_ms[-1],
        own_deviation_ms=own_deviation_ms,
        by_work_ms=covariance(own_ms, work) / work_deviation if work_deviation else 0.0,
        phases_ms=means | {REST: max(rest_ms, 0.0)},
        beside_ms=beside_ms,
        data_ms=fsum(step.data_ms or 0.0 for step in steps) / count,
        host_ms=fsum(step.host_ms or 0.0 for step in steps) / count,
        work=fsum(work) / count if work else None,
    )


def _beside(steps: Sequence[Step]) -> tuple[float, ...]:
    """Return what it takes to the end of each part of `BESIDE`; to its end, if cuts are unlike."""
    ends_ms = []
    for step in steps:
        whole_ms = (step.phases_ms or {}).get(BESIDE, 0.0)
        parts_ms = (step.parts_ms or {}).get(BESIDE, ())
        before_ms = whole_ms - fsum(parts_ms)  # passes that were not cut
        ends_ms.append([before_ms + ms for ms in accumulate(parts_ms)] or [whole_ms])
    if len({len(ends) for ends in ends_ms}) > 1:
        ends_ms = [ends[-1:] for ends in ends_ms]
    return tuple(fsum(at) / len(steps) for at in zip(*ends_ms, strict=True))


def _work(steps: Sequence[Step]) -> list[float]:
    """Return the work of each step; nothing where it is not known of one."""
    for told in ([step.tokens for step in steps], [step.samples for step in steps]):
        if all(told):
            return [(of_all or 0) / step.count for of_all, step in zip(told, steps, strict=True)]
    return []
