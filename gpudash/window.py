"""Sum the steps that belong together: the recent ones, and those of a tick, a setting, a block."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import mul
from typing import Literal, TypeAlias, get_args

from msgspec.structs import replace

from gpudash.protocol.readings import Reading
from gpudash.protocol.training import Step
from gpudash.statistics import Means, total

Amount: TypeAlias = Literal["steps", "samples", "tokens"]
AMOUNTS: tuple[Amount, ...] = get_args(Amount)


class Pace:
    """How many steps, and how long they took."""

    __slots__ = ("busy_s", "samples", "steps", "tokens")

    def __init__(self, steps: Collection[Step] = ()) -> None:
        self.steps: float = sum([step.count for step in steps])
        self.samples: float | None = total([step.samples for step in steps])
        """None if one of the steps does not know its samples; likewise `tokens`."""
        self.tokens: float | None = total([step.tokens for step in steps])
        self.busy_s = sum([step.count * step.step_ms for step in steps]) / 1e3

    def add(self, step: Step, share: float = 1) -> None:
        """Add this share of a step."""
        self.steps += share * step.count
        self.samples = _sum(self.samples, step.samples, share)
        self.tokens = _sum(self.tokens, step.tokens, share)
        self.busy_s += share * step.count * step.step_ms / 1e3

    def join(self, other: "Pace") -> None:
        self.steps += other.steps
        self.samples = _sum(self.samples, other.samples)
        self.tokens = _sum(self.tokens, other.tokens)
        self.busy_s += other.busy_s

    @property
    def step_ms(self) -> float | None:
        return 1e3 * self.busy_s / self.steps if self.steps else None

    def per_s(self, of: Amount) -> float | None:
        amount: float | None = getattr(self, of)
        return None if amount is None or self.busy_s <= 0 else amount / self.busy_s


class Window(Pace):
    """These and the means of their values, and of the readings that were taken meanwhile."""

    __slots__ = ("readings", "times")

    def __init__(self, steps: Collection[Step] = ()) -> None:
        super().__init__(steps)
        self.times = Means()
        self.readings = Means()
        for step in steps:
            self.times.add(step.values, step.count)

    def add(self, step: Step, share: float = 1) -> None:
        super().add(step, share)
        self.times.add(step.values, share * step.count)

    def read(self, reading: Reading, names: Iterable[str]) -> None:
        self.readings.add({name: reading.number(name) for name in names})

    def meet(self, other: "Window") -> None:
        """Give readings the weight of the time that steps took beside them."""
        self.join(other)
        self.times.add(other.times.values(), other.steps)
        self.readings.add(other.readings.values(), other.busy_s)

    def values(self) -> dict[str, float]:
        """Return the means by metric; absent = not measured."""
        return self.readings.values() | self.times.values()


def stretches(steps: Iterable[Step]) -> Iterator[tuple[Step, tuple[Step, ...]]]:
    """Yield a record for each run of steps that are alike, and the steps: percentiles need them."""
    # the mean of a value is over the steps in which it was measured
    for _, alike in groupby(
        steps, lambda step: (step.segment, step.warm / step.count, step.values.keys())
    ):
        each = tuple(alike)
        yield _coalesced(each), each


def _coalesced(steps: Sequence[Step]) -> Step:
    if len(steps) == 1:
        return steps[0]
    pace, counts = Pace(steps), [one.count for one in steps]
    return replace(
        steps[-1],
        step_ms=pace.step_ms,
        values={
            name: sum(map(mul, counts, [one.values[name] for one in steps])) / pace.steps
            for name in steps[0].values
        },
        count=pace.steps,
        samples=pace.samples,
        tokens=pace.tokens,
        parts_ms={},
        warm=sum([one.warm for one in steps]),
    )


def _sum(one: float | None, other: float | None, share: float = 1) -> float | None:
    return None if one is None or other is None else one + share * other
