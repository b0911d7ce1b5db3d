"""How soon an A/B of `num_workers` has a verdict, in a training that waits for its batches.

python benchmarks/bench_loader_ab.py [REPEATS]

Each question is asked of a script and of a workload. The seconds of a script are those of training,
those of a workload have its start too.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

SCRIPT = Path(__file__).with_name("slow_storage.py")
CASES = {
    "0 → 2, a step of 10 ms, a batch of 18 ms": ("0,2", 10, 18),
    "2 → 16, a step of 10 ms, a batch of 60 ms": ("2,16", 10, 60),
    "2 → 16, a step of 50 ms, a batch of 300 ms": ("2,16", 50, 300),
}
GPUDASH = [sys.executable, "-m", "gpudash", "ab", "--json", "-q"]
TRAINED = re.compile(r"trained (\d+) steps in ([\d.]+) s")


def main() -> None:
    """Print a row for each case, with medians."""
    repeats = int(sys.argv[1]) if sys.argv[1:] else 3
    print("| question | s to the verdict | pairs | s a block | control | changes |")
    print("|---|---|---|---|---|---|")
    for (name, asked), (kind, measure) in product(CASES.items(), KINDS.items()):
        found = [measure(*asked) for _ in range(repeats)]
        took_s, pairs = median(one[0] for one in found), median(one[1]["pairs"] for one in found)
        checks = ["–" if one[1]["check"] is None else one[1]["check"]["passed"] for one in found]
        changes = ", ".join(f"{100 * one[1]['change']:+.0f} %" for one in found)
        print(
            f"| {kind}: {name} | {took_s:.1f} | {pairs:.0f} | {took_s / (2 * pairs):.2f} "
            f"| {', '.join(map(str, checks))} | {changes} |",
            flush=True,
        )


def in_a_workload(values: str, step_ms: int, batch_ms: int) -> tuple[float, dict[str, Any]]:
    """Return the seconds of the command until the verdict, and its document."""
    settings = ["--set", f"step_ms={step_ms}", "--set", f"batch_ms={batch_ms}"]
    command = [*GPUDASH, str(SCRIPT), "--device", "cpu", *settings, "--lever"]
    began_s = time.monotonic()
    done = subprocess.run(
        [*command, f"num_workers={values}"], capture_output=True, text=True, check=True, timeout=200
    )
    return time.monotonic() - began_s, json.loads(done.stdout)


def in_a_script(values: str, step_ms: int, batch_ms: int) -> tuple[float, dict[str, Any]]:
    """Return the seconds of training until the verdict, and its document."""
    script = [SCRIPT, "--workers", values.partition(",")[0]]
    script += ["--step-ms", step_ms, "--batch-ms", batch_ms]
    command = [*GPUDASH, "--lever", f"num_workers={values}", "--", *map(str, script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    trained = TRAINED.search(done.stderr)
    assert trained, done.stderr
    return float(trained[2]), json.loads(done.stdout)


KINDS: dict[str, Callable[[str, int, int], tuple[float, dict[str, Any]]]] = {
    "a script": in_a_script,
    "a workload": in_a_workload,
}


if __name__ == "__main__":
    main()
