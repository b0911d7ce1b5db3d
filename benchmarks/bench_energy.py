"""Energy of equal settings: how far apart joules of a sample are, and how often that looks real.

    python -m benchmarks.bench_energy                      # needs a GPU, and some two minutes
    python -m benchmarks.bench_energy --pairs 60 --keep energy.json -- encdec --set data=resident
    python -m benchmarks.bench_energy --read energy.json   # of a recording, without a GPU

Runs an A/A with `--energy` by `gpudash ab`: 16 pairs of blocks of at least 2 s, whose joules of a
sample have to agree within 2 %. Then draws 16 pairs from those measured, with random sides, again
and again: 5 % of such comparisons of equal settings show a difference, if the interval is right.
"""

import argparse
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpudash.cli.ab_report import ComparisonReport
from gpudash.compare.paired_t import Estimate, estimate
from gpudash.compare.sequential import estimate_so_far

TIMES = 10_000
PAIRS = 16
WORKLOAD = ("encdec", "--set", "data=resident")
METHODS: dict[str, Callable[[Sequence[tuple[float, float]]], Estimate]] = {
    "of a fixed number of pairs": estimate,
    "that holds however often one looks": estimate_so_far,
}


def main() -> None:
    """Measure, or read what was measured, and print both figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--read", type=Path, help="what `gpudash ab --energy --json` has printed")
    parser.add_argument("--keep", type=Path, help="write that to this file")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--lever", default="pipelined=off,off")
    parser.add_argument("training", nargs="*", default=[*WORKLOAD])
    arguments = parser.parse_args()
    found = arguments.read.read_bytes() if arguments.read else measured(arguments)
    if arguments.keep is not None:
        arguments.keep.write_bytes(found)
    report = msgspec.json.decode(found, type=ComparisonReport)
    print(f"{report.device}: {report.verdict}")
    if report.energy is None:
        parser.error(f"no energy: {report.why_no_energy}")
    one = report.energy
    whole = estimate(one.pairs_j)
    low, high = (100 * (end or 0.0) for end in (whole.low, whole.high))
    print(
        f"A/A of joules of a {one.per}, {one.pairs} pairs: {100 * whole.change:+.2f} % "
        f"[{low:+.2f}, {high:+.2f}] (bound ± 2 %); {one.joules[0]:.4g} ± {one.within[0]:.2g} J"
    )
    for name, method in METHODS.items():
        alarms = sum(is_alarm(one.pairs_j, method, seed) for seed in range(TIMES)) / TIMES
        print(f"false alarms of the interval {name}: {100 * alarms:.1f} %")


def measured(arguments: argparse.Namespace) -> bytes:
    """Run the A/A; return its document. So close a precision is not reached: all pairs are run."""
    command = [sys.executable, "-m", "gpudash", "ab", *arguments.training]
    asked = ["--lever", arguments.lever, "--pairs", str(arguments.pairs), "--precision", "0.01%"]
    done = subprocess.run([*command, *asked, "--energy", "--json"], stdout=-1, check=True)
    return done.stdout


def is_alarm(
    pairs: Sequence[tuple[float, float]],
    method: Callable[[Sequence[tuple[float, float]]], Estimate],
    seed: int,
) -> bool:
    """Return whether pairs drawn from these, with random sides, show a difference."""
    dice = random.Random(seed)
    drawn = [dice.choice(pairs) for _ in range(PAIRS)]
    found = method([pair if dice.random() < 0.5 else pair[::-1] for pair in drawn])
    return found.low is not None and found.high is not None and not found.low <= 0 <= found.high


if __name__ == "__main__":
    main()
