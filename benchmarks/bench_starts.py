"""Whether the verdict of a few starts holds at the other starts of the same question.

    gpudash ab encdec --batch-size 8 --set data=resident --lever pipelined=off,on \
        --starts 20 --json >starts.json
    python benchmarks/bench_starts.py starts.json --starts 4

Draws so many of the starts, again and again, and asks whether their interval holds the mean of the
others. That mean is a sample itself, so 95 % is not reached even by a perfect interval.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import median, stdev

import msgspec

from gpudash.cli.ab_report import ComparisonReport, StartReport
from gpudash.compare.paired_t import Estimate
from gpudash.compare.starts import over_starts

TIMES = 10_000


def main() -> None:
    """Print a line on each document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", nargs="+", type=Path)
    parser.add_argument("--starts", type=int, default=4)
    arguments = parser.parse_args()
    for path in arguments.documents:
        report = msgspec.json.decode(path.read_bytes(), type=ComparisonReport)
        starts = [found for one in report.starts if (found := estimate_of(one)) is not None]
        if len(starts) < arguments.starts + 1:
            parser.error(f"{path} has {len(starts)} starts; it takes more than --starts")
        print(f"{report.lever}={report.a},{report.b}: {line(starts, arguments.starts)}")


def line(starts: Sequence[Estimate], drawn: int) -> str:
    """Return what was found of these starts."""
    over = [held(starts, drawn, number) for number in range(TIMES)]
    alone = [held(starts, 1, number) for number in range(TIMES)]
    spread = 100 * stdev(one.change for one in starts)
    within = 100 * median(one.half_width or 0.0 for one in starts)
    return (
        f"{len(starts)} starts, spread {spread:.2f} points, each ±{within:.2f}; the mean of the "
        f"others is held by {drawn} in {100 * sum(over) / TIMES:.1f} %, "
        f"by 1 in {100 * sum(alone) / TIMES:.1f} %"
    )


def held(starts: Sequence[Estimate], drawn: int, seed: int) -> bool:
    """Return whether the interval of some starts holds the mean of the others."""
    mixed = random.Random(seed).sample(starts, len(starts))
    found = over_starts(mixed[:drawn]) if drawn > 1 else mixed[0]
    truth = over_starts(mixed[drawn:]).change
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def estimate_of(one: StartReport) -> Estimate | None:
    """Return what a start has found."""
    if one.change is None or one.confidence is None:
        return None
    return Estimate(
        pairs=one.pairs,
        change=one.change,
        low=one.low,
        high=one.high,
        confidence=one.confidence,
    )


if __name__ == "__main__":
    main()
