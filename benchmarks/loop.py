"""A loop without any intelligence: why, its first proposal, ab, keep, and again.

python benchmarks/loop.py --device cpu --only remote_samples --only one_thread

For each slow script: the speed-up of what was kept, that of the script without its planted cause
(the best known by hand), kept changes that three fresh starts deny, and minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FOLDER = Path(__file__).parent / "trainings"
SCRIPTS = {
    "cuda": "gated_cell plain_products attention_by_hand tiny_batches",
    "cpu": "game_trees one_thread",
}
ON_BOTH = "collect_each_step many_tables padded_lists remote_samples"
MOST_TRIES = 5


def asked(folder: Path, *words: str) -> dict[str, Any]:
    """Return what gpudash answers; empty if it has no answer."""
    command = [sys.executable, "-m", "gpudash", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    return found


def is_written(folder: Path, script: str, lever: str, value: str) -> bool:
    """Write a value into the script's own line, if it has one; all else is kept on paper."""
    command = [sys.executable, "-m", "gpudash", "show", f"{lever}={value}", "--patch", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    patch = ["patch", "--quiet", "--strip=1"]
    return (
        not done.returncode
        and not subprocess.run(patch, cwd=folder, input=done.stdout, check=False).returncode
    )


def step_ms(script: Path, plant: str) -> float:
    """Return the mean of its steps by its own clock."""
    env = os.environ | {"PLANT": plant, "SECONDS": "10"}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)  # noqa: PLW1510
    figures = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return float(json.loads(figures)["step_ms"])


def sped_up(folder: Path, script: str) -> tuple[float, int, list[str]]:
    """Return the speed-up of what was kept, how much of that was wrong, and what it is."""
    tried, kept, false, speed = set[str](), list[str](), 0, 1.0
    for _ in range(MOST_TRIES):
        proposals = asked(folder, "why", "--json", script).get("proposals", ())
        first = next((one for one in proposals if one["lever"] not in tried), None)
        if first is None:
            break
        lever = first["lever"]
        tried.add(lever)
        change = f"{lever}={first['before']},{first['value']}"
        words = ("ab", "--json", "--lever", change)
        found = asked(folder, *words, script)
        if found.get("holds") is False and (found["low"] or 0) > 0:
            found = asked(folder, *words, "--starts", "4", script)
        if found.get("holds") and found["low"] > 0:
            anew = asked(folder, *words, "--starts", "3", script)
            false += not anew.get("change", 0) > 0
            speed *= 1 + found["change"]
            kept.append(change)
            if is_written(folder, script, lever, first["value"]):
                tried.remove(lever)  # more of the same may help more
    return speed, false, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=SCRIPTS, default="cpu")
    parser.add_argument("--only", action="append")
    given = parser.parse_args()
    os.environ |= {"SECONDS": "600", "PLANT": "1"}
    if given.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for name in given.only or f"{ON_BOTH} {SCRIPTS[given.device]}".split():
        with TemporaryDirectory() as place:
            folder, began_s = Path(place), time.monotonic()
            subprocess.run(["git", "init", "--quiet", place], check=True)
            for one in FOLDER.glob("*.py"):
                (folder / one.name).write_bytes(one.read_bytes())
            speed, false, kept = sped_up(folder, f"{name}.py")
            took = (time.monotonic() - began_s) / 60
            planted, without = (step_ms(FOLDER / f"{name}.py", plant) for plant in "10")
            told = f"{name}: {speed:.2f} of {planted / without:.2f}, {took:.1f} minutes"
            print(f"{told}, {false} of {len(kept)} kept are wrong: {', '.join(kept)}", flush=True)


if __name__ == "__main__":
    main()
