"""Ask a notebook's watcher for the answer. The kernel asks: only the standard library is used."""

import socket
from collections.abc import Callable
from pathlib import Path

from ..exchange import Exchange

SOCKET = "watcher.sock"
"""Its name in the run's directory."""
PATIENCE_S = 10.0
"""Seconds to wait for a reply: a busy machine is slow."""
RETRY_S = 0.05
MOST_BYTES = 16 << 20
"""Most bytes of a reply, which has a picture."""


def ask(place: Path, meanwhile: Callable[[], object] = lambda: None) -> bytes:
    """Return the reply, cut short if the other end has gone. Raises OSError if nobody watches."""
    with Exchange([(socket.AF_UNIX, str(place / SOCKET))], PATIENCE_S) as exchange:
        return exchange.line(MOST_BYTES, meanwhile)
