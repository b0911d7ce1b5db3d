"""Judge tunes by the truth of simulated trainings: how near to the best, and is any slower.

    python -m benchmarks.bench_tuning [REPEATS]

Each grid of tests/compare/tunes.py is tuned under each noise, REPEATS times (25: 1,000 tunes), and
each recording of benchmarks/grids twice as often, under its own noise. A tune counts as good if a
step takes at most 2 % longer than with the grid's best setting.
"""

import sys
from collections.abc import Sequence
from statistics import median

from tests.compare.recorded_grids import RecordedNoise, recorded
from tests.compare.tunes import FIVE, GRIDS, SIX, Grid, Noise, Simulation, Tuned, made_up

NOISES = {
    "1 %": Noise(0.01),
    "3 %": Noise(0.03),
    "6 %": Noise(0.06),
    "2 %, drift of 5 %": Noise(0.02, drift=0.05),
    "2 %, bursts in 10 %": Noise(0.02, bursts=0.1),
}


def main() -> None:
    """Print a line for each grid and noise, then the sum."""
    repeats = int(sys.argv[1]) if sys.argv[1:] else 25
    print(
        "| training | noise of a block | gain of the best | within 2 % | behind, worst | s spent |"
    )
    print("|---|---|---|---|---|---|")
    found = [
        tuned
        for grid in (*GRIDS, *map(made_up, (1, 2, 3)))
        for name, noise in NOISES.items()
        for tuned in judged(grid, name, [noise] * repeats)
    ]
    for name, recording in recorded().items():
        noises = [recording.noise(seed) for seed in range(2 * repeats)]
        spread = f"recorded, {100 * noises[0].spread:.0f} %"
        found += judged(recording.grid(name), spread, noises)
        slowest = recording.grid(f"{name}, from its slowest setting", from_slowest=True)
        found += judged(slowest, spread, noises)
    found += [
        one for levers in (FIVE, SIX) for noise in ("1 %", "3 %") for one in of_three(levers, noise)
    ]
    slower = sum(one.behind_start > 0.01 for one in found)
    print(f"\n{len(found)} tunes, of which {slower} ended more than 1 % slower than they began")


def of_three(levers: Sequence[str], noise: str) -> list[Tuned]:
    """Tune twelve made-up trainings in which the gain of a lever depends on two others."""
    grids = [made_up(seed, levers, of_three=0.08) for seed in range(12)]
    found = [Simulation(grid, seed, NOISES[noise]).run() for grid in grids for seed in range(4)]
    good = sum(one.behind_best <= 0.02 for one in found)
    tried = median(one.search.settings_tried for one in found)
    settings = len(grids[0].settings())
    print(
        f"{len(levers)} levers with terms of three, {noise}: {good} of {len(found)} within 2 %, "
        f"{tried:.0f} of {settings} settings tried",
        flush=True,
    )
    return found


def judged(grid: Grid, name: str, noises: Sequence[Noise | RecordedNoise]) -> list[Tuned]:
    """Tune under each noise, print a line on it, and return the tunes."""
    found = [Simulation(grid, seed, noise).run() for seed, noise in enumerate(noises)]
    gain = 100 * (grid.step_ms(grid.start) / grid.best_ms - 1)
    good = sum(one.behind_best <= 0.02 for one in found)
    worst = 100 * max(one.behind_best for one in found)
    spent_s = median(one.search.spent_s for one in found)
    print(
        f"| {grid.name} | {name} | {gain:+.0f} % | {good} of {len(found)} "
        f"| {worst:.1f} % | {spent_s:.0f} |",
        flush=True,
    )
    return found


if __name__ == "__main__":
    main()
