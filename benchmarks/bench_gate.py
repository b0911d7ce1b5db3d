"""How often `gpudash gate` calls a loss slower and an unchanged training pass, and how soon.

    python benchmarks/bench_gate.py --gates 10000

Gates are simulated from the recorded trainings of bench_changes.py, whose scripts start in 10 s.
What `--calibrate` foretells, from twelve starts of equal sides, stands beside what comes about.
"""

import argparse
from collections.abc import Sequence
from math import log1p
from typing import NamedTuple, TypeAlias

import numpy as np
from bench_changes import SPREADS, Recorded, at_once, each_cell, intervals, log_ratios, within

from gpudash.cli.gate_report import CALIBRATED
from gpudash.cli.verbs import GATE_S
from gpudash.compare.gate import FOUND, MOST_LOOKS, Ending, forecast, of_throughput
from gpudash.compare.rounds import StartCosts, over_rounds

LIMIT, LOSS = 0.02, 0.05
Rounds: TypeAlias = list[StartCosts]
CALIBRATIONS = 100
"""Of each cell: a forecast goes through a thousand gates."""


class _Ended(NamedTuple):
    """How gates ended."""

    endings: list[Ending]
    seconds: list[float]

    def pct(self, *which: Ending) -> float:
        return 100 * sum(map(self.endings.count, which)) / len(self.endings)

    def took_s(self, which: Ending) -> float:
        took = [
            seconds
            for ended, seconds in zip(self.endings, self.seconds, strict=True)
            if ended == which
        ]
        return float(np.median(took)) if took else float("nan")


def ended(rounds: Rounds) -> tuple[Ending, float]:
    """Return how it ends, and when; it looks after each start."""
    means, half = intervals(log_ratios(rounds))
    low, high, limit = means - half, means + half, log1p(-LIMIT)
    known = (high < limit) | ((low >= limit) & np.isfinite(half))
    seen = rounds[: int(known.argmax()) + 1 if known.any() else len(rounds)]
    found = of_throughput(over_rounds(seen), LIMIT)
    assert known.any() == (found != "inconclusive")
    return found, sum(one.seconds for one in seen)


def smallest_loss(gates: Sequence[Rounds]) -> tuple[float, float]:
    """Return the loss that is called slower in 90 % of gates of equal sides, and when in half."""
    ends = [np.add(*intervals(log_ratios(one))) for one in gates]
    needed = np.quantile([one.min() for one in ends], FOUND)
    looks = [int((one <= needed).argmax()) if one.min() <= needed else len(one) for one in ends]
    took = [
        sum(one.seconds for one in of[: look + 1]) for of, look in zip(gates, looks, strict=True)
    ]
    return float(-np.expm1(log1p(-LIMIT) - needed)), float(np.median(took))


def cell(rng: np.random.Generator, trainings: Sequence[Recorded], spread: float, gates: int) -> str:
    def simulated(change: float, count: int, most: int = MOST_LOOKS) -> list[Rounds]:
        each = (trainings[one % len(trainings)] for one in range(count))
        return [within(at_once(rng, one, spread, change), GATE_S)[:most] for one in each]

    equal = simulated(0.0, gates)
    slower, same = (
        _Ended(*map(list, zip(*map(ended, one), strict=True)))
        for one in (simulated(-LOSS, gates), equal)
    )
    calibrated = simulated(0.0, CALIBRATIONS, CALIBRATED)
    foretold = [forecast(one, LIMIT, GATE_S) for one in calibrated]
    each = [one for one in foretold if one is not None]
    smallest, smallest_s = smallest_loss(equal)
    ratios = {
        "smallest loss": [one.loss / smallest for one in each],
        "its time": [one.loss_s / smallest_s for one in each],
        "passes": [one.passes / max(same.pct("pass", "faster") / 100, 1e-4) for one in each],
    }
    told = ", ".join(
        "{} {:.2f} ({:.2f} to {:.2f})".format(name, *np.nanquantile(of, (0.5, 0.1, 0.9)))
        for name, of in ratios.items()
    )
    return (
        f"-{100 * LOSS:g} %: slower {slower.pct('slower'):.1f} % (median "
        f"{slower.took_s('slower'):.0f} s), inconclusive {slower.pct('inconclusive'):.1f} %; "
        f"unchanged: pass {same.pct('pass', 'faster'):.1f} % ({same.took_s('pass'):.0f} s), "
        f"slower {same.pct('slower'):.2f} %; smallest loss {100 * smallest:.1f} % "
        f"({smallest_s:.0f} s); "
        f"foretold over true: {told}"
    )


def main() -> None:
    """Print a line on each group of trainings and spread of starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gates", type=int, default=10_000)
    each_cell(cell, SPREADS, parser.parse_args().gates)


if __name__ == "__main__":
    main()
