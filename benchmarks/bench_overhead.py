"""What gpudash costs the training: a recorded run against the bare loop, in alternation.

    python benchmarks/bench_overhead.py --batch-size 8 --pairs 10 --steps 1500

Both are whole processes as a user starts them, on the same data held on the device. The
bare loop is timed by its own wall clock between device-synchronised borders; the recorded
run by what its CSV says of the steps after the warm-up.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from ratios import show

WARMUP_STEPS = 50
MIN_ROWS = 10
INTERVAL_S = "0.1"
"""Between the rows of the CSV: few enough steps that hardly any is left out at either end."""


def levers(batch_size: int) -> list[str]:
    """Return the arguments that both runs share."""
    return ["encdec", "--set", "data=resident", "--set", f"batch_size={batch_size}"]


def bare(batch_size: int, steps: int) -> float:
    """Return the steps/s of the bare loop."""
    command = [sys.executable, "-m", "workloads", *levers(batch_size), "--steps", str(steps)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(output)["steps_per_s"])


def recorded(batch_size: int, steps: int) -> float:
    """Return the steps/s between the first row after the warm-up and the last full row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.csv"
        steps += WARMUP_STEPS
        command = [sys.executable, "-m", "gpudash", *levers(batch_size)]
        command += ["--steps", str(steps), "--record", str(path), "--interval", INTERVAL_S]
        subprocess.run(command, check=True, capture_output=True)
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    # the last row is cut off by the end
    warm = [row for row in rows if int(row["step"]) >= WARMUP_STEPS][:-1]
    if len(warm) < MIN_ROWS:
        raise SystemExit(f"{len(warm)} rows after the warm-up are too few: raise --steps")
    first, last = warm[0], warm[-1]
    seconds = float(last["time_s"]) - float(first["time_s"])
    return (int(last["step"]) - int(first["step"])) / seconds


def main() -> None:
    """Alternate the two and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1500)
    arguments = parser.parse_args()
    bases, news = [], []
    for pair in range(arguments.pairs):
        order = (bare, recorded) if pair % 2 == 0 else (recorded, bare)
        rates = {run: run(arguments.batch_size, arguments.steps) for run in order}
        bases.append(1 / rates[bare])
        news.append(1 / rates[recorded])
        print(f"pair {pair + 1}: {(news[-1] / bases[-1] - 1) * 100:+.2f} %", flush=True)
    what = f"step time, recorded over bare, batch {arguments.batch_size}"
    show(what, news, bases, bare_ms=[b * 1e3 for b in bases], recorded_ms=[n * 1e3 for n in news])


if __name__ == "__main__":
    main()
