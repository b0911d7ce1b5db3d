"""Ask the process that watches a notebook's kernel for the answer.

The kernel asks, so only the standard library is imported here.
"""

import socket
import time
from collections.abc import Callable
from pathlib import Path

SOCKET = "watcher.sock"
"""Its name in the run's directory."""
PATIENCE_S = 10.0
"""Seconds to wait for a reply: a busy machine is slow."""
RETRY_S = 0.05
READ_BYTES = 1 << 16


def ask(place: Path) -> socket.socket:
    """Return the connection on which the answer will come. Raises OSError if nobody watches."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(place / SOCKET))
    except OSError:
        connection.close()
        raise
    return connection


def line(connection: socket.socket, meanwhile: Callable[[], object] = lambda: None) -> bytes:
    """Return the reply, cut short if the other end has gone. Raises OSError.

    Until it comes, `meanwhile` is called now and then.
    """
    received, until_s = b"", time.monotonic() + PATIENCE_S
    connection.settimeout(RETRY_S)
    while not received.endswith(b"\n"):
        try:
            more = connection.recv(READ_BYTES)
        except TimeoutError:
            if time.monotonic() > until_s:
                raise
            meanwhile()
            continue
        if not more:
            break
        received += more
    return received
