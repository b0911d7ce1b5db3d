"""What all ranks train in a step: views fold rank 0's steps, and their samples are the job's."""

from typing import NamedTuple

from msgspec.structs import replace

from gpudash.protocol import Envelope, Event, Progress, Reading, Started, Step
from gpudash.statistics import total


class _Size(NamedTuple):
    """Of what a rank trains."""

    samples: float | None
    """In a step."""
    tokens: float | None
    total_samples: int | None
    """So far."""


class JobSteps:
    """Adds to rank 0's steps what the other ranks train in them.

    A rank that has told of no step yet counts as rank 0 does.
    """

    def __init__(self) -> None:
        self._ranks = 1
        self._sizes: dict[int, _Size] = {}  # of each rank but 0, in its newest steps

    def take(self, envelope: Envelope) -> None:
        """Take how many ranks there are, and what another rank than 0 trains."""
        match envelope.body:
            case Started() as started:
                self._ranks = max(started.world_size, envelope.rank + 1)
                self._sizes.pop(envelope.rank, None)
            case Progress() as progress if envelope.rank and progress.steps:
                before = self._sizes.get(envelope.rank)
                self._sizes[envelope.rank] = _size(progress, before)

    def of_job(self, item: Event | Reading) -> Event | Reading:
        """Return rank 0's item, with the samples and tokens of all ranks."""
        if not isinstance(item, Progress) or self._ranks == 1:
            return item
        known = [size for rank, size in self._sizes.items() if rank < self._ranks]
        alike = self._ranks - len(known)  # rank 0, and those not heard of
        samples = total(size.samples for size in known)
        tokens = total(size.tokens for size in known)

        def of_all(step: Step) -> Step:
            return replace(
                step,
                samples=_sum(step.samples, alike, samples, step.count),
                tokens=_sum(step.tokens, alike, tokens, step.count),
            )

        so_far = total(size.total_samples for size in known)
        return replace(
            item,
            steps=tuple(map(of_all, item.steps)),
            total_samples=_sum(item.total_samples, alike, so_far, 1),
        )


def _size(progress: Progress, before: _Size | None) -> _Size:
    count = sum(step.count for step in progress.steps)
    samples = total(step.samples for step in progress.steps)
    tokens = total(step.tokens for step in progress.steps)
    so_far = progress.total_samples
    if so_far is None:  # in a replay: the rows of a recording tell of their own samples alone
        so_far = total((before.total_samples if before else 0, samples))
    return _Size(
        samples=None if samples is None else samples / count,
        tokens=None if tokens is None else tokens / count,
        total_samples=so_far,
    )


def _sum(own: int | None, alike: int, others: float | None, count: int) -> int | None:
    return None if own is None or others is None else own * alike + round(others * count)
