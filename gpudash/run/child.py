"""How another Python is started: it imports the same gpudash as ours, wherever the user stands."""

import os
import subprocess
import sys
from pathlib import Path

import gpudash


def command(*arguments: str) -> list[str]:
    """Return the command line of a Python with these arguments, to be run in `environment()`."""
    return [sys.executable, "-P", *arguments]  # the user's folder named workloads is not ours


def environment() -> dict[str, str]:
    """Return the child's environment: the same gpudash as ours, output unbuffered."""
    package_root = str(Path(gpudash.__file__).parents[1])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
    }


def run(*arguments: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Python to its end; return what it printed. Raises subprocess.TimeoutExpired."""
    return subprocess.run(
        command(*arguments),
        env=environment(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
