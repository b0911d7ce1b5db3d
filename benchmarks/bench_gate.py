"""How often `gpudash gate` calls a loss slower and an unchanged training pass, and how soon.

    python benchmarks/bench_gate.py --gates 10000

Gates are simulated from the recorded trainings of bench_changes.py, whose scripts start in 10 s.
What `--calibrate` foretells, from twelve starts of equal sides, stands beside what comes about.
"""

import argparse
import json
from collections.abc import Sequence
from math import log1p
from pathlib import Path
from typing import NamedTuple

import numpy as np
from bench_changes import Array, Pace, Recorded, as_rounds, at_once, intervals, log_ratios

from gpudash.cli.gate_report import CALIBRATED
from gpudash.cli.verbs import GATE_S
from gpudash.compare.gate import FOUND, Ending, forecast, of_throughput
from gpudash.compare.rounds import over_rounds, rounds_within

SPREADS = (0.01, 0.03, 0.05)
LIMIT, LOSS = 0.02, 0.05
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


def ended(logs: Array, pace: Pace) -> tuple[Ending, float]:
    """Return how a gate of such starts ends, and when; it looks after each of them."""
    means, half = intervals(logs)
    low, high, limit = means - half, means + half, log1p(-LIMIT)
    known = (high < limit) | ((low >= limit) & np.isfinite(half))
    looks = int(known.argmax()) + 1 if known.any() else len(logs)
    found = of_throughput(over_rounds(as_rounds(logs[:looks], pace)), LIMIT)
    assert known.any() == (found != "inconclusive")
    return found, looks * pace.seconds


def smallest_loss(logs: Sequence[Array], pace: Pace) -> tuple[float, float]:
    """Return the loss that is called slower in 90 % of gates of equal sides, and when in half."""
    ends = [mean + half for mean, half in map(intervals, logs)]
    needed = np.quantile([one.min() for one in ends], FOUND)
    looks = [int((one <= needed).argmax()) + 1 if one.min() <= needed else len(one) for one in ends]
    return float(-np.expm1(log1p(-LIMIT) - needed)), float(np.median(looks)) * pace.seconds


def cell(rng: np.random.Generator, trainings: Sequence[Recorded], spread: float, gates: int) -> str:
    pace = at_once()
    most = rounds_within(GATE_S, pace.seconds)

    def simulated(change: float, count: int, rounds: int) -> list[Array]:
        return [
            log_ratios(rng, trainings[one % len(trainings)], pace, spread, change, rounds)
            for one in range(count)
        ]

    equal = simulated(0.0, gates, most)
    slower, same = (
        _Ended(*map(list, zip(*(ended(one, pace) for one in logs), strict=True)))
        for logs in (simulated(-LOSS, gates, most), equal)
    )
    calibrated = simulated(0.0, CALIBRATIONS, CALIBRATED)
    foretold = [forecast(as_rounds(one, pace), LIMIT, GATE_S) for one in calibrated]
    each = [one for one in foretold if one is not None]
    smallest, smallest_s = smallest_loss(equal, pace)
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
