"""Judge planted slowdowns and equal commands by `gpudash ab --a … --b …`, in starts of their own.

A script that trains a small network is compared with itself, slowed by a share of its step or not
at all. It prints for each what was found, and how long it took; at the end the counts.

    python -m benchmarks.real_changes --slow 20 --equal 20 [--device cuda]
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(__file__).parent / "own_training" / "slowed.py"
SLOWDOWNS_PCT = (3.0, 5.0, 8.0, 12.0)


class Trial(NamedTuple):
    """One comparison."""

    slower_pct: float
    device: str
    seed: int
    budget_s: float
    cores: str


class Judged(NamedTuple):
    """What came of it."""

    trial: Trial
    change: float | None
    low: float | None
    high: float | None
    starts: int
    losses: str
    seconds: float
    told: str

    @property
    def outcome(self) -> str:
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return "inconclusive"
        return "slower" if self.high < 0 else "faster"


def main() -> None:
    parser = argparse.ArgumentParser(description="planted slowdowns, and none")
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--equal", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--at-once", type=int, default=1, help="trials that run at the same time")
    parser.add_argument("--cores", type=int, default=2, help="that each trial has")
    asked = parser.parse_args()
    trials = [*_trials(asked)]
    with ThreadPoolExecutor(asked.at_once) as pool:
        found = [*pool.map(_judge, trials)]
    for slower in (True, False):
        of_kind = [one.outcome for one in found if (one.trial.slower_pct > 0) is slower]
        counts = {one: of_kind.count(one) for one in ("slower", "faster", "inconclusive")}
        print("planted" if slower else "equal", len(of_kind), counts)


def _trials(asked: argparse.Namespace) -> Iterator[Trial]:
    planted = [SLOWDOWNS_PCT[one % len(SLOWDOWNS_PCT)] for one in range(asked.slow)]
    pairs = zip_longest(planted, [0.0] * asked.equal)  # a run that is cut short has some of both
    kinds = (one for pair in pairs for one in pair if one is not None)
    for number, slower_pct in enumerate(kinds):
        first = number % asked.at_once * asked.cores
        cores = f"{first}-{first + asked.cores - 1}"
        yield Trial(slower_pct, asked.device, number, asked.budget, cores)


def _judge(trial: Trial) -> Judged:
    train = [sys.executable, str(SCRIPT), "--device", trial.device, "--seed", str(trial.seed)]
    a, b = shlex.join(train), shlex.join([*train, "--slower", str(trial.slower_pct)])
    words = ["gpudash", "ab", "--json", "--quiet", "--budget", f"{trial.budget_s:g}"]
    began_s = time.monotonic()
    done = subprocess.run(
        ["taskset", "-c", trial.cores, *words, "--a", a, "--b", b],
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began_s
    found = json.loads(done.stdout or "{}")
    losses = (found.get("losses") or {}).get("kind", "not compared")
    change, low, high = (found.get(name) for name in ("change", "low", "high"))
    starts = len(found.get("starts", ()))
    judged = Judged(trial, change, low, high, starts, losses, seconds, done.stderr[-300:])
    shown = ", ".join("–" if end is None else f"{100 * end:+.1f}" for end in (change, low, high))
    print(
        f"{trial.slower_pct:4.1f} % slower: {judged.outcome:12} {shown}; {judged.starts} starts, "
        f"{seconds:.0f} s, losses {losses}",
        judged.told if judged.change is None else "",
        flush=True,
    )
    return judged


if __name__ == "__main__":
    main()
