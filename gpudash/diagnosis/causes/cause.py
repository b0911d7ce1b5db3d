"""A cause: what may limit a training, how much of a step it takes, and what it was measured by."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from gpudash import format as fmt
from gpudash.diagnosis.model import Model
from gpudash.diagnosis.parts import Part
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.snapshot import Snapshot

ASK_PROFILE = "t profiles some steps and tells"


class Measured(NamedTuple):
    """The measurements that causes and their evidence are made from."""

    snapshot: Snapshot
    step: RecentStep
    model: Model | None = None

    @property
    def who(self) -> str:
        return "rank 0" if len(self.snapshot.ranks) > 1 else "the training"

    @property
    def of_step(self) -> str:
        return f"of {fmt.milliseconds(self.step.step_ms)} ms"

    def ms(self, share_pct: float) -> str:
        return f"{fmt.milliseconds(share_pct * (self.step.step_ms or 0.0) / 100)} {self.of_step}"

    def share(self, ms: float | None) -> str:
        return fmt.percent(self.step.share_pct(ms))

    @property
    def can_profile(self) -> bool:
        return self.step.profile is None and "profile" in self.snapshot.can


Evidence: TypeAlias = Callable[[Measured, float], Iterator[str]]
"""Yields clauses, the most important first, given what the cause takes in percent."""


class Limit(NamedTuple):
    """A row for each thing that may limit a training."""

    word: str
    """In an answer, such as `data`."""
    title: str
    evidence: Evidence
    label: str = ""
    """What its share is of."""
    least_pct: float = 0.0
    """The share from which on it limits."""
    part: Part | None = None
    """The part of a step that is less without it, and is slowed to prove it."""
    rank: int = 5
    """Causes of a lower rank come first, of the same rank the larger one."""
    is_outside: bool = False
    """Whether it is no part of a step."""
    meets_code: bool = False
    """Whether a line of the script's own code may be the cause."""


class Cause(NamedTuple):
    """What may limit a training, and how much of a step it takes."""

    limit: Limit
    pct: float | None
    """What a step would save without it; None if it was not measured."""
    takes_pct: float = 0.0

    @property
    def binds(self) -> bool:
        """Whether it takes enough to be the limit."""
        return self.pct is not None and self.pct >= self.limit.least_pct

    def evidence(self, now: Measured) -> tuple[str, ...]:
        """Tell no less than what makes it the limit: else a title would be refuted by it."""
        told_pct = max(self.takes_pct, self.pct or 0.0)
        return tuple(filter(None, self.limit.evidence(now, told_pct)))


def saving(limit: Limit, model: Model) -> Cause:
    """Return what a step would save without the limit's part."""
    assert limit.part is not None
    times, low_ms = model.scenarios[0], model.without(limit.part).low
    takes_pct = 100 * limit.part.ms(times) / model.step_ms
    # where one resource does all, nothing hides a part
    return Cause(limit, takes_pct if times.is_one else 100 * low_ms / model.step_ms, takes_pct)
