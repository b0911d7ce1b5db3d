"""gpudash's step against the loop of a tutorial, each start a process of its own.

    python benchmarks/bench_plain_loop.py --rounds 10 --seconds 3
    python benchmarks/bench_plain_loop.py --rounds 10 --seconds 3 --also ../before

The plain loop is `plain_loop.py`. Beside it run the bare loop (`python -m workloads`) and a
recorded run (`gpudash --record`), on the same data held on the device, serial and on two streams.
All of them start once in each round, in an order drawn anew. A process has a pace of its own, so
the unit of replication is the start. `--also` names another checkout, whose bare loop takes turns
too.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from math import inf
from pathlib import Path

from bench_overhead import bare, recorded
from ratios import show

PLAIN = Path(__file__).with_name("plain_loop.py")
STEPS_PER_S = 300
"""About what an H200 reaches at batch 8: it turns seconds into steps."""
PIPELINED = {1: "off", 2: "on"}


def plain(batch_size: int, steps: int, streams: int) -> float:
    """Return the steps/s of the plain loop."""
    command = [sys.executable, str(PLAIN), "--streams", str(streams)]
    command += ["--batch-size", str(batch_size), "--steps", str(steps)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output)["steps_per_s"])


def rate(side: str, streams: int, arguments: argparse.Namespace) -> float:
    """Start one process; return its steps/s."""
    batch_size, steps = arguments.batch_size, round(arguments.seconds * STEPS_PER_S)
    if side == "plain":
        return plain(batch_size, steps, streams)
    if side == "recorded":
        return recorded(batch_size, steps, PIPELINED[streams])
    return bare(batch_size, steps, PIPELINED[streams], arguments.also if side == "also" else None)


def main() -> None:
    """Run the rounds, and print a line for each side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0, help="trained by each start")
    parser.add_argument("--within-s", type=float, default=inf, help="no round that ends later")
    parser.add_argument("--sides", default="plain,bare,recorded")
    parser.add_argument("--streams", default="1,2")
    parser.add_argument("--also", type=Path, help="another checkout")
    arguments = parser.parse_args()
    sides = [*arguments.sides.split(","), *(["also"] if arguments.also else [])]
    starts = [(side, int(one)) for side in sides for one in arguments.streams.split(",")]
    rates: Mapping[tuple[str, int], list[float]] = defaultdict(list)
    began_s = time.monotonic()
    for number in range(arguments.rounds):
        taken_s = time.monotonic() - began_s
        if taken_s + taken_s / max(number, 1) > arguments.within_s:
            break
        for start in random.sample(starts, len(starts)):
            rates[start].append(rate(*start, arguments))
        newest = ", ".join(f"{side} {n}: {rates[side, n][-1]:.1f}" for side, n in starts)
        print(f"round {number + 1}: {newest}", flush=True)
    for side, streams in starts:
        if side != "plain":
            what = f"steps/s, {side} over plain, {'serial' if streams == 1 else 'two streams'}"
            show(what, rates[side, streams], rates["plain", streams])
    print(json.dumps({f"{side} {n}": rates[side, n] for side, n in starts}))


if __name__ == "__main__":
    main()
