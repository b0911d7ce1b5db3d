"""Start another Python that imports this gpudash, whatever the current folder."""

import os
import subprocess
import sys
from pathlib import Path

import gpudash


def command(*arguments: str) -> list[str]:
    """Return the command line of a Python with these arguments, to be run in `environment()`."""
    return [sys.executable, "-P", *arguments]  # a folder of the user's may be named workloads


def environment() -> dict[str, str]:
    """Return the child's environment: this gpudash, and unbuffered output."""
    package_root = str(Path(gpudash.__file__).parents[1])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
    }


def run(*arguments: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Python to its end; return its output. Raises subprocess.TimeoutExpired."""
    return subprocess.run(
        command(*arguments),
        env=environment(),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
