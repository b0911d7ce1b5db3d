"""Judge tunes by the truth of simulated trainings: how near to the best, and is any slower.

    python -m benchmarks.bench_tuning [REPEATS]

Each grid of tests/compare/tunes.py is tuned under each noise, REPEATS times (25: 1,000 tunes). A
tune counts as good if a step takes at most 2 % longer than with the grid's best setting.
"""

import sys
from statistics import median

from tests.compare.tunes import GRIDS, Noise, Simulation, made_up

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
    slower = tunes = 0
    print(
        "| training | noise of a block | gain of the best | within 2 % | behind, worst | s spent |"
    )
    print("|---|---|---|---|---|---|")
    for grid in (*GRIDS, *map(made_up, (1, 2, 3))):
        gain = 100 * (grid.step_ms(grid.start) / grid.best_ms - 1)
        for name, noise in NOISES.items():
            found = [Simulation(grid, seed, noise).run() for seed in range(repeats)]
            good = sum(one.behind_best <= 0.02 for one in found)
            worst = 100 * max(one.behind_best for one in found)
            spent_s = median(one.search.spent_s for one in found)
            slower += sum(one.behind_start > 0.01 for one in found)
            tunes += repeats
            print(
                f"| {grid.name} | {name} | {gain:+.0f} % | {good} of {repeats} "
                f"| {worst:.1f} % | {spent_s:.0f} |",
                flush=True,
            )
    print(f"\n{tunes} tunes, of which {slower} ended more than 1 % slower than they began")


if __name__ == "__main__":
    main()
