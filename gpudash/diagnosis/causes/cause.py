"""A cause: what may limit a training, how much of a step it takes, and what is told of it."""

from typing import NamedTuple

from gpudash.diagnosis.model import Model
from gpudash.diagnosis.parts import ModelPart
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.snapshot import Snapshot


class Measured(NamedTuple):
    """The measurements that causes and their clauses are made from."""

    snapshot: Snapshot
    step: RecentStep
    model: Model | None = None


class Limit(NamedTuple):
    """A row for each thing that may limit a training."""

    word: str
    """In an answer, such as `data`."""
    title: str
    clauses: tuple[str, ...] = ()
    """Evidence, the most important first. `{name}` is a fact, without which a clause is not told;
    `{ms}` and `{pct}` are what the cause takes of a step."""
    label: str = ""
    """What its share is of."""
    least_pct: float = 0.0
    part: ModelPart | None = None
    """The part of a step that is less without it, and is slowed to prove it."""
    also: tuple[ModelPart, ...] = ()
    """Other parts on which levers are proposed: one that looks alike, is late for its reason, or is
    waited for beside it."""
    rank: int = 5
    """Of causes that limit, those of a lower rank come first, of the same rank the larger one."""
    is_outside: bool = False
    """Whether it is no part of a step."""
    beside: tuple[str, ...] = ()
    """Clauses about it where something else is the limit."""


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

    @property
    def told_pct(self) -> float:
        """What it takes, if that is enough to limit: no title is refuted by its evidence."""
        return self.takes_pct if self.takes_pct >= self.limit.least_pct else self.pct or 0.0


def saving(limit: Limit, model: Model) -> Cause:
    """Return what a step would save without the limit's part."""
    assert limit.part is not None
    parts_ms = model.without(limit.part).low, limit.part.ms(model.scenarios[0])
    return Cause(limit, *(100 * ms / model.step_ms for ms in parts_ms))
