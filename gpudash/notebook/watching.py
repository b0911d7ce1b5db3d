"""The process that watches the kernel: it folds and draws, as the kernel must not."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..exchange import Exchange
from ..input_file import read_input

LOG, SOCKET = "watcher.log", "watcher.sock"
"""What it prints, and where it answers, in the run's directory."""
BEGIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from gpudash.imports import prefer_own_modules; prefer_own_modules(); "
    "from gpudash.cli.notebook_watch import watch; watch(sys.argv[2])"
)
ENVIRONMENT = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "PYTHONSTARTUP")
"""Variables that are meant for the kernel's Python."""
ENDS_S, ANSWERS_S = 5.0, 10.0
"""Seconds to wait for its end, and for a reply: a busy machine is slow."""
RETRY_S = 0.05
MOST_BYTES = 16 << 20
"""Of its log, and of a reply, which has a picture."""


def ask(place: Path, known: tuple[int, int], meanwhile: Callable[[], object]) -> bytes:
    """Return the reply, cut short if the other end has gone. Raises OSError if nobody watches.

    It is about all of the `known` steps: the number of their training, and how many they are.
    """
    with Exchange([(socket.AF_UNIX, str(place / SOCKET))], ANSWERS_S) as exchange:
        exchange.send(json.dumps(known).encode())
        return exchange.line(MOST_BYTES, meanwhile)


PACKAGE = Path(ask.__code__.co_filename).parents[1]  # `__file__` may be another, see `inject`


class Watching:
    """The watcher of one kernel. It ends with the kernel, whatever becomes of that."""

    def __init__(self, place: Path, python: str | None) -> None:
        """Start it; `python` is that of gpudash's environment, None if it is the kernel's own."""
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        left_out = () if python is None else ENVIRONMENT
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        with suppress(OSError), (place / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                [python or sys.executable, "-P", "-c", BEGIN, str(PACKAGE.parent), str(place)],
                env=environment,
                stdin=subprocess.PIPE,  # it ends when this does
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt is for the kernel alone
            )

    def ask(self, known: tuple[int, int], meanwhile: Callable[[], object]) -> dict[str, Any] | str:
        """Return the text and picture, or why there is none; call `meanwhile` while waiting."""
        until_s = time.monotonic() + ANSWERS_S
        while time.monotonic() < until_s:
            with suppress(OSError, ValueError):
                found: dict[str, Any] = json.loads(ask(self._place, known, meanwhile))
                return found
            if self._process is None or self._process.poll() is not None:
                break
            meanwhile()
            time.sleep(RETRY_S)
        return self._why_not()

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:  # by a line: a forked child may hold the pipe open
            process.communicate(b"\n", timeout=ENDS_S)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()

    def _why_not(self) -> str:
        process = self._process
        if process is not None and process.poll() is None:
            return f"gpudash's own process has not answered for {ANSWERS_S:.0f} s"
        try:
            lines = read_input(self._place / LOG, MOST_BYTES).decode(errors="replace").split("\n")
        except OSError:
            lines = []
        last = next((line for line in reversed(lines) if line.strip()), "it could not be started")
        return f"gpudash's own process has ended: {last}"
