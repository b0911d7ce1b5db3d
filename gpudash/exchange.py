"""Ask over a connection and read the answer: with one deadline for all of it, and a bound.

A socket's own timeout begins anew with each byte, so whoever sends one now and then holds its
reader for ever. Only the standard library is imported here, as the kernel of a notebook asks too.
"""

import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

MOST_BYTES = 1 << 16
TURN_S = 0.05
"""How often the wait for an answer is interrupted."""


class Exchange:
    """A connection that is over at one moment, whatever the other end does."""

    def __init__(self, places: Iterable[tuple[socket.AddressFamily, Any]], within_s: float) -> None:
        """Connect to the first address that answers. Raises OSError."""
        self._until_s = time.monotonic() + within_s
        failure = OSError("there is no address")
        for family, place in places:
            self._connection = socket.socket(family)
            try:
                self._connection.settimeout(self._left_s)
                self._connection.connect(place)
            except OSError as error:
                self._connection.close()
                failure = error
            else:
                return
        raise failure

    def __enter__(self) -> "Exchange":  # noqa: PYI034  # Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, data: bytes) -> None:
        self._connection.settimeout(self._left_s)
        self._connection.sendall(data)

    def line(self, most: int = MOST_BYTES, meanwhile: Callable[[], object] = lambda: None) -> bytes:
        """Return a line, cut after `most` bytes or where the answer ends. Raises OSError."""
        received, more = bytearray(), b""
        while b"\n" not in more and len(received) < most:
            self._connection.settimeout(min(self._left_s, TURN_S))
            try:
                more = self._connection.recv(most - len(received))
            except TimeoutError:
                meanwhile()
                continue
            if not more:
                break
            received += more
        return bytes(received.partition(b"\n")[0])

    @property
    def _left_s(self) -> float:
        """Raises TimeoutError once the deadline has passed."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s
