"""Run a Python program in a pseudo-terminal, as a user's terminal would."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What one run left behind."""

    output: bytes
    seen_s: float | None
    """From the start until the output held what was waited for."""
    peak_rss_mib: float


def run(
    arguments: list[str],
    *,
    columns: int = 120,
    rows: int = 40,
    until: Callable[[bytes], bool] | None = None,
    limit_s: float = 60.0,
    keep: int = 1 << 20,
    source: Path = ROOT,
) -> Ran:
    """Run `python arguments…` on this source to its end, or until the output satisfies `until`."""
    begin = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONPATH": str(source),
            "PYTHONDONTWRITEBYTECODE": "",  # modules are compiled, as where they are installed
        }
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    output = b""
    seen_s = None
    while time.monotonic() - begin < limit_s:
        if not select.select([terminal], [], [], 0.05)[0]:
            continue
        try:
            output = (output + os.read(terminal, 1 << 16))[-keep:]
        except OSError:  # the child has closed its side
            break
        if until is not None and seen_s is None and until(output):
            seen_s = time.monotonic() - begin
            os.write(terminal, b"\x03")  # leaves the dashboard
    os.close(terminal)
    _, _, usage = os.wait4(pid, 0)
    return Ran(output=output, seen_s=seen_s, peak_rss_mib=usage.ru_maxrss / 1024)
