"""Race settings against each other, and drop those that cannot win any more. Pure statistics.

Each round measures every setting that is left once, so what a round shares cancels. The confidence
sequence of an A/B may be looked at after every round.
"""

from collections.abc import Mapping, Sequence
from math import fsum, log, sqrt
from statistics import fmean, stdev

from gpudash.compare.paired_t import Estimate
from gpudash.compare.sequential import LEAST, estimate_so_far

ERROR = 0.1
"""In so many races at most, any setting is dropped although it is more than 1 % better than the
best so far. That costs some speed and no honesty: the winner is proven afterwards."""
EFFECTS = (10.0,)
"""Values of a lever mostly differ by many times a pair's spread. With this the interval has ends
after two pairs instead of five, and is a third longer after ten."""
FAR = log(4 / 3)
"""What takes a third longer in its first round is dropped: no usual noise hides a gain there."""
MUCH = 0.05
"""What a race looks for at first; smaller gains are looked for once all levers have been tried."""


class Race:
    """A race of settings, which are numbered from 0; 0 is the leader."""

    def __init__(self, settings: int) -> None:
        self.rounds = 0
        self.left = list(range(settings))
        """The settings that may still win."""
        self._costs: list[list[float]] = [[] for _ in range(settings)]
        self._confidence = 1 - ERROR / max(settings - 1, 1)

    @property
    def is_over(self) -> bool:
        return len(self.left) <= 1

    @property
    def is_close(self) -> bool:
        """Whether none that is left can be much better than the best."""
        best = self.best
        return all(one == best or self._is_behind(one, best, MUCH) for one in self.left)

    @property
    def best(self) -> int:
        return min(self.left, key=self._mean)

    @property
    def winner(self) -> int:
        """The best, or the leader if it is left and as fast within 1 % or within the noise."""
        best = self.best
        if best and 0 in self.left:
            leads = [log(a / b) for a, b in zip(self._costs[0], self._costs[best], strict=False)]
            noise = stdev(leads) / sqrt(len(leads)) if len(leads) > 1 else 0.0
            if fmean(leads) < max(LEAST, noise):
                return 0
        return best

    def add(self, costs: Mapping[int, float]) -> None:
        """Take costs in ms a sample."""
        self.rounds += 1
        for setting, cost in costs.items():
            self._costs[setting].append(cost)

    def of(self, settings: Sequence[int]) -> "Race":
        race = Race(len(settings))
        race.rounds = self.rounds
        race._costs = [[*self._costs[one]] for one in settings]
        return race

    def drop(self, setting: int) -> None:
        self.left.remove(setting)

    def drop_losers(self) -> None:
        """Drop the leader only if it is surely slower."""
        best = self.best
        if self.rounds == 1:
            far = self._mean(best) + FAR
            self.left = [one for one in self.left if self._mean(one) <= far]
        for setting in [one for one in self.left if one != best]:
            if self._is_behind(setting, best, LEAST if setting else 0.0):
                self.left.remove(setting)
        if best and 0 in self.left and self._is_behind(best, 0, LEAST):
            self.left.remove(best)

    def against(self, one: int, other: int) -> Estimate | None:
        pairs = [*zip(self._costs[one], self._costs[other], strict=False)]
        return estimate_so_far(pairs, self._confidence, EFFECTS) if pairs else None

    def _is_behind(self, setting: int, other: int, least: float) -> bool:
        found = self.against(other, setting)
        return found is not None and found.high is not None and found.high <= least

    def _mean(self, setting: int) -> float:
        costs = self._costs[setting]
        return fsum(map(log, costs)) / len(costs) if costs else 0.0
