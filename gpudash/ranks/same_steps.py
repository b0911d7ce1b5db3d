"""Group the steps of several ranks into blocks of about a second, of the same steps on each rank.

Steps are matched by number, so the clocks of two machines are never compared.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import ceil, fsum, inf
from statistics import covariance, fmean, median

import msgspec

from gpudash.metrics import phases_ms
from gpudash.protocol.training import Step

BLOCK_S = 1.0
FEWEST_STEPS = 4
"""Least steps in a block."""
MOST_SAMPLES = 128
"""Most steps kept of a rank in a block: more would only cost memory."""
ODD = 2.0
"""A step this many times as long as the median is left out, with those that were measured with it:
a checkpoint, or a compilation, …"""
OFTEN = 0.2
"""… unless such steps take this part of the time: of several loader workers' batches only the first
one may have to be waited for. Then a block holds the batches of …"""
MOST_WORKERS = 16
"""… so many loader workers at least."""
BLOCKS = 4
"""So many blocks are looked at for the time of a step, …"""
MORE_BLOCKS = 8
"""… and so many for that of odd ones."""
WAIT = "communication"
"""The phase in which a rank waits for the others, …"""
WAIT_MS = f"{WAIT}_ms"
BESIDE = "backward"
"""… and the phase that collectives overlap with. They slow down its computation, above all while
they wait: on two H200s, one rank was 0.42 ms late in its forward pass, and the other one spent
0.37 ms of that in its backward pass and 0.03 ms in `WAIT`."""
REST = ""
"""The part of a step outside all phases: the device idled."""


class _RankMeans(msgspec.Struct, frozen=True, gc=False):
    """Means of a block's steps on one rank, in ms."""

    own_ms: float
    """The step without its waits in collectives."""
    own_error_ms: float
    """Standard error of `own_ms`."""
    wait_ms: float
    least_wait_ms: float
    """The shortest wait: of the step in which the rank came last."""
    apart_ms: float
    """The step without waits and `BESIDE`: no other rank affects it."""
    phases_ms: dict[str, float]
    """Without `WAIT`, with `REST`."""
    beside_ms: tuple[float, ...]
    """Time in `BESIDE` up to the end of each of its parts."""
    data_ms: float
    host_ms: float
    own_deviation_ms: float
    """Standard deviation between steps, …"""
    by_work_ms: float
    """… and the part of it that follows the work of the step."""
    work: float | None
    """Tokens a step with padding, or samples if tokens are unknown."""


class StepsOfAll(msgspec.Struct, frozen=True):
    """The same steps on all ranks that have reported them."""

    step_ms: float
    ranks: dict[int, _RankMeans]
    late_ms: dict[int, float]
    """How far each rank is behind the others, at the end of the part where it is furthest so."""
    beside_ms: dict[int, float]
    """The part of that delay that arises in `BESIDE`; never negative."""
    data_ms: dict[int, float]
    """How much longer each rank waits for data than the others."""
    host_ms: dict[int, float]
    """How much longer each rank's host is busy than others', at most the excess of busy time and
    data wait: a host that never gets ahead of its GPU spends the rest of a step in a launch."""


class SameSteps:
    """Sorts the steps of all ranks into blocks; keeps two open blocks at most."""

    def __init__(self) -> None:
        self._size = 0  # steps in a block
        self._newest = -1
        self._steps_ms = deque[float](maxlen=BLOCKS)  # of the newest blocks
        self._odd = deque((0.0,) * 3, maxlen=MORE_BLOCKS)  # the time odd steps take, as a part
        self._open: dict[int, dict[int, list[Step]]] = {}

    def add(self, rank: int, step: Step) -> StepsOfAll | None:
        if not self._size and WAIT_MS not in step.values:
            return None
        self._size = self._size or _steps_in_block(step.step_ms)
        block, number = None, step.step // self._size
        if number > self._newest:
            while (old := min(self._open, default=number)) < number - 1:
                block = self._closed(self._open.pop(old).items()) or block
            number = step.step // self._size  # the block size may have changed
            self._newest = number
        if number >= self._newest - 1:
            samples = self._open.setdefault(number, {}).setdefault(rank, [])
            if len(samples) < MOST_SAMPLES:
                samples.append(step)
        return block

    def _closed(self, steps_of: Iterable[tuple[int, Sequence[Step]]]) -> StepsOfAll | None:
        by_rank = dict(steps_of)
        together = [one for steps in by_rank.values() for one in steps]
        steps_ms = [one.step_ms for one in _in_full(together)]
        if not steps_ms:
            return None
        median_ms = median(steps_ms)
        odd_ms = self._odd_ms(together, median_ms)
        self._steps_ms.append(fmean(steps_ms))
        wanted = _steps_in_block(fmean(self._steps_ms))
        if odd_ms == inf:
            wanted = max(wanted, MOST_WORKERS)
        if not self._size / 2 <= wanted <= self._size * 2:  # the step time has changed
            self._size = wanted
            self._open.clear()
            self._steps_ms.clear()
            return None
        usual = {
            rank: [one for one in steps if _longest_ms(one, median_ms) < odd_ms]
            for rank, steps in by_rank.items()
        }
        ranks = {rank: _means(steps) for rank, steps in usual.items() if len(_in_full(steps)) > 1}
        if len(ranks) < 2:
            return None
        apart = over_others({rank: one.apart_ms for rank, one in ranks.items()})
        beside = _late_beside(ranks)
        busy = over_others({rank: one.host_ms for rank, one in ranks.items()})
        taken = over_others({rank: one.host_ms + one.data_ms for rank, one in ranks.items()})
        return StepsOfAll(
            step_ms=fmean(one.step_ms for steps in usual.values() for one in _in_full(steps)),
            ranks=ranks,
            late_ms={rank: ms + beside[rank] for rank, ms in apart.items()},
            beside_ms=beside,
            data_ms=over_others({rank: one.data_ms for rank, one in ranks.items()}),
            host_ms={rank: min(ms, taken[rank]) for rank, ms in busy.items()},
        )

    def _odd_ms(self, steps: Sequence[Step], median_ms: float) -> float:
        """Return the time from which on a step is left out."""
        longest_ms = (_longest_ms(one, median_ms) for one in steps)
        odd_ms = fsum(ms for ms in longest_ms if ms >= ODD * median_ms)
        self._odd.append(odd_ms / fsum(one.count * one.step_ms for one in steps))
        return ODD * median_ms if fmean(self._odd) < OFTEN else inf


def _longest_ms(steps: Step, median_ms: float) -> float:
    """Return what one of these steps takes at most, if the others take as long as usual."""
    return steps.count * (steps.step_ms - median_ms) + median_ms


def _in_full(steps: Iterable[Step]) -> list[Step]:
    return [one for one in steps if WAIT_MS in one.values]


def over_others(values: Mapping[int, float]) -> dict[int, float]:
    """Return how much larger each value is than the median of the others; needs two values."""
    ordered = sorted(values.items(), key=lambda one: one[1])
    middle = {(len(ordered) - 2) // 2, (len(ordered) - 1) // 2}
    return {
        rank: value - fsum(ordered[at + (place <= at)][1] for at in middle) / len(middle)
        for place, (rank, value) in enumerate(ordered)
    }


def _late_beside(ranks: Mapping[int, _RankMeans]) -> dict[int, float]:
    """Return each rank's largest delay in ms within `BESIDE`; it nearly catches up at the end."""
    cut_alike = len({len(one.beside_ms) for one in ranks.values()}) == 1
    first = next(iter(ranks.values()))
    latest = dict.fromkeys(ranks, 0.0)
    for end in range(-len(first.beside_ms) if cut_alike else -1, 0):
        late = over_others({rank: one.beside_ms[end] for rank, one in ranks.items()})
        latest = {rank: max(ms, late[rank]) for rank, ms in latest.items()}
    return latest


def _steps_in_block(step_ms: float) -> int:
    return max(ceil(BLOCK_S * 1e3 / max(step_ms, 1e-3)), FEWEST_STEPS)


def _means(each: Sequence[Step]) -> _RankMeans:
    """Correct the steps that were measured in full by all steps' waits for data.

    With four loader workers one step in four may wait: too few of those measured tell how often.
    """
    steps = _in_full(each)
    data_ms = fsum(one.count * one.values.get("data_ms", 0.0) for one in each)
    data_ms /= sum(one.count for one in each)
    unseen_ms = data_ms - _mean(steps, "data_ms")
    count = len(steps)
    names = phases_ms({name: 0.0 for step in steps for name in step.values})
    means = {name: _mean(steps, f"{name}_ms") for name in names}
    step_ms = fsum(step.step_ms for step in steps) / count
    overlap_ms = _mean(steps, "overlap_ms")
    rest_ms = step_ms - sum(means.values()) + overlap_ms + unseen_ms
    wait_ms = means.pop(WAIT)
    waits_ms = [step.values.get(WAIT_MS, 0.0) for step in steps]
    own_ms = [step.step_ms - ms for step, ms in zip(steps, waits_ms, strict=True)]
    beside_ms = _beside(steps)
    work = _work(steps)
    own_deviation_ms = covariance(own_ms, own_ms) ** 0.5
    work_deviation = covariance(work, work) ** 0.5 if work else 0.0
    return _RankMeans(
        own_ms=step_ms - wait_ms + unseen_ms,
        own_error_ms=own_deviation_ms / count**0.5,
        wait_ms=wait_ms,
        least_wait_ms=min(waits_ms),
        apart_ms=step_ms - wait_ms - beside_ms[-1] + unseen_ms,
        own_deviation_ms=own_deviation_ms,
        by_work_ms=covariance(own_ms, work) / work_deviation if work_deviation else 0.0,
        phases_ms=means | {REST: max(rest_ms, 0.0)},
        beside_ms=beside_ms,
        data_ms=data_ms,
        host_ms=_mean(steps, "host_ms"),
        work=fsum(work) / count if work else None,
    )


def _mean(steps: Sequence[Step], name: str) -> float:
    return fsum(step.values.get(name, 0.0) for step in steps) / len(steps)


def _beside(steps: Sequence[Step]) -> tuple[float, ...]:
    ends_ms = []
    for step in steps:
        whole_ms = step.values.get(f"{BESIDE}_ms", 0.0)
        parts_ms = step.parts_ms.get(BESIDE, ())
        before_ms = whole_ms - fsum(parts_ms)  # passes that were not cut
        ends_ms.append([before_ms + ms for ms in accumulate(parts_ms)] or [whole_ms])
    if len({len(ends) for ends in ends_ms}) > 1:
        ends_ms = [ends[-1:] for ends in ends_ms]
    return tuple(fsum(at) / len(steps) for at in zip(*ends_ms, strict=True))


def _work(steps: Sequence[Step]) -> list[float]:
    """Count padding as work; return nothing if any is unknown."""
    if all(step.tokens for step in steps):
        padding = (step.values.get("padding_tokens", 0.0) for step in steps)
        return [
            (step.tokens or 0) / step.count + more
            for step, more in zip(steps, padding, strict=True)
        ]
    if all(step.samples for step in steps):
        return [(step.samples or 0) / step.count for step in steps]
    return []
