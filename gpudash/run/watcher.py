"""Ask the process that watches a notebook's kernel: for the answer, or to step aside.

The kernel asks too. So only the standard library is imported here.
"""

import socket
from pathlib import Path

SOCKET = "watcher.sock"
"""Its name in the run's directory."""
ANSWER, YIELD = b"answer\n", b"yield\n"
"""Requests: the answer and its picture as JSON; to step aside while the connection lasts."""
YOURS, BUSY = b"yours\n", b"busy\n"
"""Replies to `YIELD`: nobody else watches now; another gpudash does already."""
PATIENCE_S = 10.0
"""Seconds to wait for a reply: a busy machine is slow."""
READ_BYTES = 1 << 16


def ask(place: Path, request: bytes) -> socket.socket:
    """Return the connection on which the reply will come. Raises OSError if nobody watches."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(place / SOCKET))
        connection.sendall(request)
    except OSError:
        connection.close()
        raise
    return connection


def answer(connection: socket.socket) -> bytes:
    """Return the reply, a line; cut short if the watcher ends. Raises OSError."""
    received = b""
    while not received.endswith(b"\n"):
        more = connection.recv(READ_BYTES)
        if not more:
            break
        received += more
    return received
