"""How often `gpudash gate` calls a loss slower and an unchanged training pass, and how soon.

    python benchmarks/bench_gate.py --gates 10000

Gates are simulated from the recorded trainings of bench_changes.py, whose scripts start in 10 s.
What `--calibrate` foretells, from twelve starts of equal sides, stands beside what comes about.
"""

import argparse
import json
from collections.abc import Sequence
from math import exp, log1p
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench_changes import BLOCK_S, START_S, SWITCH_S, Array, Recorded, intervals

from gpudash.cli.gate_report import CALIBRATED
from gpudash.cli.verbs import GATE_S
from gpudash.compare.alternation import FEWEST_BLOCKS
from gpudash.compare.gate import FOUND, MOST_LOOKS, Ending, forecast, of_throughput
from gpudash.compare.rounds import StartCosts, measuring_s, over_rounds

SPREADS = (0.01, 0.03, 0.05)
LIMIT, LOSS = 0.02, 0.05
EACH_S = BLOCK_S + SWITCH_S
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


class _Gate(NamedTuple):
    """Its rounds, as many as the budget has."""

    rounds: list[StartCosts]
    seconds: Array
    """Until after each of them."""
    logs: Array


def gate(
    rng: np.random.Generator, training: Recorded, spread: float, change: float, most: int
) -> _Gate:
    """Measure after each start for as long as gpudash would."""
    rounds, logs, ends_s = list[StartCosts](), list[float](), list[float]()
    began_s, now_s = float(rng.uniform(0, 1e4)), 0.0
    while len(rounds) < most:
        pairs = max(round(measuring_s(rounds, START_S) / (2 * EACH_S)), FEWEST_BLOCKS)
        begins_s = now_s + START_S + SWITCH_S + EACH_S * np.arange(2 * pairs, dtype=float)
        seconds = START_S + 2 * pairs * EACH_S
        if now_s + seconds > GATE_S:
            break
        costs = training.log_costs(began_s + begins_s)
        differ = rng.choice((-1, 1), pairs) * (costs[::2] - costs[1::2])
        logs.append(differ.mean() + rng.normal(0, spread * 2**0.5) + log1p(change))
        noise = float(differ.var(ddof=1)) / pairs
        rounds.append(StartCosts((exp(logs[-1]), 1.0), seconds, seconds - START_S, noise))
        now_s += seconds
        ends_s.append(now_s)
    return _Gate(rounds, np.array(ends_s), np.array(logs))


def ended(one: _Gate) -> tuple[Ending, float]:
    """Return how it ends, and when; it looks after each start."""
    means, half = intervals(one.logs)
    low, high, limit = means - half, means + half, log1p(-LIMIT)
    known = (high < limit) | ((low >= limit) & np.isfinite(half))
    looks = int(known.argmax()) + 1 if known.any() else len(one.logs)
    found = of_throughput(over_rounds(one.rounds[:looks]), LIMIT)
    assert known.any() == (found != "inconclusive")
    return found, float(one.seconds[looks - 1])


def smallest_loss(gates: Sequence[_Gate]) -> tuple[float, float]:
    """Return the loss that is called slower in 90 % of gates of equal sides, and when in half."""
    ends = [np.add(*intervals(one.logs)) for one in gates]
    needed = np.quantile([one.min() for one in ends], FOUND)
    looks = [int((one <= needed).argmax()) if one.min() <= needed else -1 for one in ends]
    took = [one.seconds[look] for one, look in zip(gates, looks, strict=True)]
    return float(-np.expm1(log1p(-LIMIT) - needed)), float(np.median(took))


def cell(rng: np.random.Generator, trainings: Sequence[Recorded], spread: float, gates: int) -> str:
    def simulated(change: float, count: int, most: int = MOST_LOOKS) -> list[_Gate]:
        each = (trainings[one % len(trainings)] for one in range(count))
        return [gate(rng, one, spread, change, most) for one in each]

    equal = simulated(0.0, gates)
    slower, same = (
        _Ended(*map(list, zip(*map(ended, one), strict=True)))
        for one in (simulated(-LOSS, gates), equal)
    )
    calibrated = simulated(0.0, CALIBRATIONS, CALIBRATED)
    foretold = [forecast(one.rounds, LIMIT, GATE_S) for one in calibrated]
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
    asked = parser.parse_args()
    groups = json.loads(Path(__file__).with_name("blocks.json").read_bytes())
    for group, of_names in groups.items():
        trainings = [Recorded(rates) for rates in of_names.values()]
        rng = np.random.default_rng(0)
        for spread in SPREADS:
            found = cell(rng, trainings, spread, asked.gates)
            print(f"{group}, starts {100 * spread:g} %: {found}", flush=True)


if __name__ == "__main__":
    main()
