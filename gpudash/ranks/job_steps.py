"""Add the samples and tokens of all ranks to rank 0's steps, which the views fold."""

from typing import NamedTuple

from msgspec.structs import replace

from gpudash.protocol.envelope import Envelope, Event
from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Progress, State, Step
from gpudash.statistics import total


class _Size(NamedTuple):
    """How much a rank trains."""

    samples: float | None
    """A step."""
    tokens: float | None
    total_samples: int | None
    """So far."""


class JobSteps:
    """Adds the other ranks' samples and tokens to rank 0's steps.

    A rank that has reported no step yet is assumed to train as much as rank 0.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._world_size = 1
        self._states: dict[int, State] = {}
        self._sizes: dict[int, _Size] = {}  # of each rank but 0, in its newest steps

    def take(self, envelope: Envelope) -> None:
        """Fold the number of ranks, and what ranks other than 0 train."""
        rank = envelope.rank
        match envelope.body:
            case State(phase="starting"):
                self._begin()
            case State() as state:
                before, self._states[rank] = self._states.get(rank), state
                if state.process is not None and state.starts_after(before):
                    self._start(rank, state.process.world_size)
            case Progress() as progress if rank and progress.steps:
                self._sizes[rank] = _size(progress)

    def _start(self, rank: int, world_size: int) -> None:
        self._world_size = world_size
        if world_size > 1:  # else each rank trains alone, and the others are unaffected
            self._states = {one: state for one, state in self._states.items() if one < world_size}
            self._sizes = {one: size for one, size in self._sizes.items() if one < world_size}
        self._sizes.pop(rank, None)

    def of_job(self, item: Event | Reading) -> Event | Reading:
        """Return rank 0's item, with the samples and tokens of all ranks."""
        ranks = max(self._world_size, len(self._states.keys() | {0}))
        if not isinstance(item, Progress) or ranks == 1:
            return item
        ended = {rank for rank, state in self._states.items() if state.phase == "parted"}
        known = [size for rank, size in self._sizes.items() if rank not in ended]
        # rank 0, and ranks that have not reported
        alike = max(ranks - len(ended) - len(known), 1)
        samples = total(size.samples for size in known)
        tokens = total(size.tokens for size in known)

        def of_all(step: Step) -> Step:
            return replace(
                step,
                samples=_sum(step.samples, alike, samples, step.count),
                tokens=_sum(step.tokens, alike, tokens, step.count),
            )

        so_far = total(size.total_samples for size in self._sizes.values())
        return replace(
            item,
            steps=tuple(map(of_all, item.steps)),
            total_samples=_sum(item.total_samples, alike, so_far, 1),
        )


def _size(progress: Progress) -> _Size:
    count = sum(step.count for step in progress.steps)
    samples = total(step.samples for step in progress.steps)
    tokens = total(step.tokens for step in progress.steps)
    return _Size(
        samples=None if samples is None else samples / count,
        tokens=None if tokens is None else tokens / count,
        total_samples=progress.total_samples,
    )


def _sum(own: int | None, alike: int, others: float | None, count: int) -> int | None:
    return None if own is None or others is None else own * alike + round(others * count)
