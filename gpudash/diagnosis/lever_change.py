"""What is known of a lever's change, and what it does to a step."""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple, TypeAlias

from gpudash import format as fmt
from gpudash.diagnosis.model import Model, played_ms
from gpudash.diagnosis.parts import ModelPart, Times
from gpudash.diagnosis.recent_step import RecentStep
from gpudash.protocol.inspections import Timing
from gpudash.snapshot import Snapshot

Played: TypeAlias = Callable[[Times], float]
"""Returns the duration of a step with a change, in ms."""


class LeverChange(NamedTuple):
    """A change of a lever, and what is measured."""

    helps: str
    """A word of `EFFECTS`."""
    before: str
    value: str
    step: RecentStep
    model: Model
    snapshot: Snapshot = Snapshot()
    share: float = 1.0
    """Of what it shortens: the part that the lever can take away."""
    timings: tuple[Timing, ...] = ()
    """What the models' calls took in a rehearsal of the change."""

    @property
    def times(self) -> Times:
        return self.model.scenarios[0]

    @property
    def works(self) -> str:
        return f"the device works {fmt.milliseconds(self.times.device)} {self.of_step}"

    @property
    def of_step(self) -> str:
        return f"of {fmt.milliseconds(self.model.step_ms)} ms"

    def traffic_ms(self, weights: float, state: float = 0.0) -> float | None:
        """Take multiples of the weights' and of the optimizer state's size; None: not known."""
        traced = self.step.profiled
        if traced is None or traced.peak is None or traced.weights is None:
            return None
        mib = weights * traced.weights.mib + state * traced.weights.state_mib
        return mib * 2**20 / 1e6 / traced.peak.memory_gb_s

    def least_of_ranks(self, name: str) -> float | None:
        values = (row.values.get(name) for row in self.snapshot.ranks)
        return min(filter(None, values), default=None)

    def ms_of(self, phases: Iterable[str]) -> float:
        return sum(self.step.phases_ms.get(name, 0.0) for name in phases)


class Outcome(NamedTuple):
    """What a change does to a step."""

    most: Played
    least: Played | None = None
    """At worst; None if only the best is known."""
    source: str = ""
    times_samples: float = 1.0
    """Samples of a step, as a multiple of the present ones."""


NOTHING = Outcome(played_ms)
Estimate: TypeAlias = Callable[[LeverChange], Outcome | None]
"""Returns what a change does; None if no measurement supports a figure."""


def without(change: LeverChange, parts: tuple[ModelPart, ...], said: str) -> Outcome:
    """If these parts took no time."""
    ms = fmt.milliseconds(sum(part.ms(change.times) for part in parts))
    return Outcome(
        lambda times: without_ms(times, parts), source=said.format(ms=ms, of=change.of_step)
    )


def without_ms(times: Times, parts: tuple[ModelPart, ...]) -> float:
    return played_ms(reduce(lambda left, part: part.without(left), parts, times))


def change_pct(before_ms: float, after_ms: float) -> float:
    """Keep at least 1 % of a step's time."""
    return 100 * (before_ms / max(after_ms, before_ms / 100) - 1)
