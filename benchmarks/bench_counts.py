"""How often a planted change of what a step does is counted, and how often equal sides differ.

    python benchmarks/bench_counts.py
    python benchmarks/bench_counts.py --device cuda

Each plant of `counted_training.py` is compared with its script as `gpudash ab` does it. The
unchanged sides of all these starts are compared with each other, which are sides of one program.
"""

import argparse
import sys
import time
from argparse import Namespace
from itertools import combinations
from pathlib import Path

from counted_training import BASES

from gpudash.cli.rounds import Asked, MeasuredRound, NoResultError, Rounds
from gpudash.compare.counted import Each, changes
from gpudash.run.user_command import understand

SCRIPT = Path(__file__).with_name("counted_training.py")


def silent(_news: object) -> None:
    """Show and say nothing of the starts."""


def measured(base: str, plant: str, device: str) -> MeasuredRound:
    words = ["--", sys.executable, str(SCRIPT), base]
    sides = [[*words, "--device", device], [*words, plant, "--device", device]]
    a, b = (Asked(" ".join(one[3:]), understand(one)) for one in sides)
    rounds = Rounds((a, b), Namespace(pairs=6), time.monotonic() + 300, silent, silent)
    return rounds.next(seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("bases", nargs="*", default=[*BASES], help=", ".join(BASES))
    asked = parser.parse_args()
    device = asked.device
    planted = found = equal = wrong = 0
    for base in asked.bases:
        plants = BASES[base]
        same: list[Each] = []
        for plant in plants if base != "memory" or device == "cuda" else ():
            planted += 1
            try:
                a, b = measured(base, plant, device).counts
            except NoResultError as error:
                print(f"{base}, {plant}: {error.why}", *error.printed, sep="\n  ", flush=True)
                continue
            if isinstance(a, str) or isinstance(b, str):
                print(f"{base}, {plant}: not counted: {a if isinstance(a, str) else b}", flush=True)
                continue
            same.append(a)
            seen = [one.sentence for one in changes(a, b)]
            found += bool(seen)
            print(f"{base}, {plant}: {'; '.join(seen) or 'MISSED'}", flush=True)
        for a, b in combinations(same, 2):
            equal += 1
            seen = [one.sentence for one in changes(a, b)]
            wrong += bool(seen)
            if seen:
                print(f"{base}, unchanged: WRONG: {'; '.join(seen)}", flush=True)
    print(f"found {found} of {planted}; {wrong} of {equal} unchanged pairs differ")


if __name__ == "__main__":
    main()
