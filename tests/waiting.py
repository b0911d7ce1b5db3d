"""Wait for what comes sooner or later, on a machine as busy as it may be."""

import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE_S = 240.0
"""Seconds after which it is taken that it never comes."""
PACE_S = 0.005


def until(condition: Callable[[], T], so_far: Callable[[], object] = lambda: "it never came") -> T:
    """Return the condition's first true value. Raises AssertionError with what `so_far` returns."""
    end_s = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < end_s, so_far()
        time.sleep(PACE_S)
    return found


def done(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return its output and exit code."""
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": PATIENCE_S}
    return subprocess.run(words, text=True, check=False, **usual | options)


def done_without_path(
    *words: str | Path, cwd: Path, timeout: float = PATIENCE_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end without our PYTHONPATH, which leads to this checkout."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return done(*words, cwd=cwd, timeout=timeout, env=clean | environment)


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
