"""Ask the process that watches a notebook's kernel: for the answer, or to step aside.

One gpudash watches at a time: the one that holds the lock. So a watcher that has just been started
takes nothing from a dashboard, and whoever dies leaves nothing behind. The kernel asks too, so only
the standard library is imported here.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SOCKET, LOCK = "watcher.sock", "watched"
"""Names in the run's directory."""
ANSWER, YIELD = b"answer\n", b"yield\n"
"""Requests: the answer and its picture as JSON; to release the lock, for who asks."""
YOURS, BUSY = b"yours\n", b"busy\n"
"""Replies to `YIELD`: the lock is free until the connection ends; another gpudash has it."""
PATIENCE_S = 10.0
"""Seconds to wait for a reply: a busy machine is slow."""
RETRY_S = 0.05
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


def line(connection: socket.socket, meanwhile: Callable[[], object] = lambda: None) -> bytes:
    """Return a request or a reply; cut short if the other end has gone. Raises OSError.

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


def lock(place: Path) -> int | None:
    """Return a descriptor that holds the lock until it is closed; None if another process does."""
    held = os.open(place / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


def take_over(place: Path) -> int | None:
    """Return the lock, from the notebook's own watcher if need be; None if a dashboard has it.

    Raises OSError if the run is over.
    """
    until_s = time.monotonic() + PATIENCE_S
    while (held := lock(place)) is None and time.monotonic() < until_s:
        with suppress(OSError), ask(place, YIELD) as connection:  # it may be starting, or ending
            reply = line(connection)
            if reply == BUSY:
                return None
            if reply == YOURS:
                return lock(place)
        time.sleep(RETRY_S)
    return held
