"""Judge planted slowdowns and equal versions of a training, each in starts of its own.

A script that trains a small network is compared with itself, slowed by a share of its step or not
at all: as two commands (`gpudash ab`), or as the commits of a repository (`gpudash gate`). It
prints for each what was found, and how long it took; at the end the counts.

    python -m benchmarks.real_changes --slow 20 --equal 20 [--device cuda] [--gate]

Each trial has cores of its own, of those that this process may use, and on GPUs its own GPU.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import NamedTuple

SCRIPT = Path(__file__).parent / "own_training" / "slowed.py"
SLOWDOWNS_PCT = (3.0, 5.0, 8.0, 12.0)
NOT_SLOWED = "default=0.0"
"""What a commit of the script changes, to slow it."""


class Place(NamedTuple):
    """Where one trial at a time runs."""

    cores: str
    device: str


class Trial(NamedTuple):
    """One comparison."""

    slower_pct: float
    seed: int
    budget_s: float
    by_gate: bool


def main() -> None:
    parser = argparse.ArgumentParser(description="planted slowdowns, and none")
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--equal", type=int, default=20)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--gate", action="store_true", help="by gpudash gate, not gpudash ab")
    parser.add_argument("--budget", type=float, default=300.0)
    parser.add_argument("--at-once", type=int, default=1, help="trials that run at the same time")
    parser.add_argument("--cores", type=int, default=2, help="that each trial has")
    asked = parser.parse_args()
    usable = sorted(os.sched_getaffinity(0))
    if asked.at_once * asked.cores > len(usable):
        parser.error(f"{asked.at_once} trials of {asked.cores} cores; usable: {len(usable)}")
    places = SimpleQueue[Place]()
    for number in range(asked.at_once):
        cores = usable[number * asked.cores :][: asked.cores]
        device = "cpu" if asked.device == "cpu" else f"cuda:{number}"
        places.put(Place(",".join(map(str, cores)), device))

    def judge(trial: Trial) -> str:
        place = places.get()
        try:
            return _judge(trial, place)
        finally:
            places.put(place)

    trials = [*_trials(asked)]
    with ThreadPoolExecutor(asked.at_once) as pool:
        found = [*pool.map(judge, trials)]
    for kind in ("planted", "equal"):
        both = zip(trials, found, strict=True)
        counts = Counter(
            one for trial, one in both if (trial.slower_pct > 0) == (kind == "planted")
        )
        print(f"{kind} {counts.total()}:", dict(counts))


def _trials(asked: argparse.Namespace) -> Iterator[Trial]:
    planted = [SLOWDOWNS_PCT[one % len(SLOWDOWNS_PCT)] for one in range(asked.slow)]
    pairs = zip_longest(planted, [0.0] * asked.equal)  # a run that is cut short has some of both
    kinds = (one for pair in pairs for one in pair if one is not None)
    for number, slower_pct in enumerate(kinds):
        yield Trial(slower_pct, number, asked.budget, asked.gate)


def _judge(trial: Trial, place: Place) -> str:
    """Return the outcome."""
    options = ["--device", place.device, "--seed", str(trial.seed)]
    with TemporaryDirectory() as folder:
        if trial.by_gate:
            _as_repository(Path(folder), trial.slower_pct)
            words = ["gate", "HEAD", ".", "--", sys.executable, "train.py", *options]
        else:
            train = [sys.executable, str(SCRIPT), *options]
            a, b = shlex.join(train), shlex.join([*train, "--slower", str(trial.slower_pct)])
            words = ["ab", "--a", a, "--b", b]
        begin = ["taskset", "-c", place.cores, sys.executable, "-m", "gpudash", words[0]]
        begin += ["--json", "--quiet", "--budget", f"{trial.budget_s:g}"]
        began_s = time.monotonic()
        done = subprocess.run(
            [*begin, *words[1:]], cwd=folder, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began_s
    found = json.loads(done.stdout or "{}")
    change, low, high = (found.get(name) for name in ("change", "low", "high"))
    outcome = str(found.get("ending") or _outcome(low, high))
    starts = found.get("starts", 0)
    shown = ", ".join("–" if end is None else f"{100 * end:+.1f}" for end in (change, low, high))
    print(
        f"{trial.slower_pct:4.1f} % slower: {outcome:12} {shown}; "
        f"{starts if isinstance(starts, int) else len(starts)} starts, {seconds:.0f} s, "
        f"losses {(found.get('losses') or {}).get('kind', 'not compared')}",
        done.stderr[-300:] if change is None else "",
        flush=True,
    )
    return outcome


def _outcome(low: float | None, high: float | None) -> str:
    if low is None or high is None or low <= 0 <= high:
        return "inconclusive"
    return "slower" if high < 0 else "faster"


def _as_repository(folder: Path, slower_pct: float) -> None:
    """Commit the script; the tree as it is has it slowed, or another comment."""
    script, text = folder / "train.py", SCRIPT.read_text()
    git: Sequence[str] = ("git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t")
    assert NOT_SLOWED in text
    script.write_text(text)
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "a training")):
        subprocess.run([*git, *words], check=True)
    slowed = text.replace(NOT_SLOWED, f"default={slower_pct}")
    script.write_text(slowed if slower_pct else f"{text}\n# unchanged\n")


if __name__ == "__main__":
    main()
