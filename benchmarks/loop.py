"""A loop without any intelligence: it types what each answer says is `next`, and keeps a gain.

    python benchmarks/loop.py remote_samples one_thread

For each slow script: the speed-up of what was kept; that without its planted cause; minutes.
"""

import json
import os
import shlex
import subprocess
import sys
import time
import tomllib
from math import prod
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent / "trainings"
INDEX = tomllib.loads((FOLDER / "index.toml").read_text())
SCRIPTS = [name for name, told in INDEX.items() if "best" in told]
"""Those that a lever helps."""


def kept_of(folder: str, script: str) -> dict[str, float]:
    """Return the changes that were kept, each with its speed-up."""
    following, gain, kept = f"gpudash why {script}", 1.0, dict[str, float]()
    while following:
        print(f"{gain:.2f}, next: {following}", file=sys.stderr, flush=True)
        _, verb, *words = shlex.split(following)
        how = ["--json"] * (verb != "show" and "--json" not in words)
        command = [sys.executable, "-m", "gpudash", verb, *how, *words]
        said = subprocess.run(command, cwd=folder, capture_output=True, check=False).stdout
        if verb == "show":  # what has no patch is to be edited by somebody, before more is asked
            subprocess.run(["patch", "-sp1"], cwd=folder, input=said, check=False)
            kept[words[0]], following = gain, f"gpudash why {script}" if said else ""
        else:
            found = json.loads(said or "{}")
            following, gain = found.get("next"), 1 + (found.get("change") or 0.0)
    return kept


def step_ms(script: Path, plant: str) -> float:
    env = os.environ | {"PLANT": plant, "SECONDS": "10"}
    lines = subprocess.check_output([sys.executable, script], env=env, text=True).splitlines()
    return float(json.loads(next(one for one in lines if one.startswith("{")))["step_ms"])


if __name__ == "__main__":
    for name in sys.argv[1:] or SCRIPTS:
        os.environ |= {"SECONDS": "600", "PLANT": "1"}
        with TemporaryDirectory() as folder:
            copytree(FOLDER, folder, dirs_exist_ok=True)
            subprocess.run(["git", "init", "-q", folder], check=True)
            began_s, kept = time.monotonic(), kept_of(folder, f"{name}.py")
        took = (time.monotonic() - began_s) / 60
        planted, without = (step_ms(FOLDER / f"{name}.py", plant) for plant in "10")
        told = f"{prod(kept.values()):.2f} of {planted / without:.2f}, {took:.1f} minutes"
        print(f"{name}: {told}: {', '.join(kept)}", flush=True)
