"""Exchange lines, or ask a process for its stack, without blocking and with bounded buffers."""

import socket
from collections.abc import Callable
from contextlib import suppress

from gpudash.rendezvous import Rendezvous

READ_BYTES = 1 << 16
TURN_BYTES = 1 << 20
"""Most bytes read in one turn, so that a flood delays nothing else. A pipe holds far less, so one
turn after its writer's end reads the rest."""
LINE_BYTES = 4 << 20
"""Longest line of a trusted end."""
UNSENT_BYTES = 8 << 20
"""Most unsent bytes for an end that does not read: about a minute of a node's short steps."""


class Lost(Exception):  # noqa: N818  # it is an event, not an error
    """The connection is unusable; the text says why, as a clause."""


class HungUp(Lost):
    """The other end has closed the connection."""


class Lines:
    """One end of a connection."""

    def __init__(self, connection: socket.socket, longest: int = LINE_BYTES) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._arrived: list[bytes] = []
        self._partial = b""
        self._unsent = bytearray()
        self.longest = longest
        """Most bytes of a line from the other end."""
        self.ended = False
        """Whether the other end has closed the connection."""

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def filenos(self) -> tuple[int, ...]:
        return (self.fileno(),)

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def read(self) -> list[bytes]:
        """Send unsent bytes too. Raises Lost."""
        self._flush()
        received = b""
        if not self.ended:
            most = min(TURN_BYTES, self.longest + 1)
            received, self.ended = receive(self._connection.recv, most)
        *lines, self._partial = (self._partial + received).split(b"\n")
        if max(map(len, (*lines, self._partial))) > self.longest:
            raise Lost("a line of it is too long")
        lines, self._arrived = self._arrived + lines, []
        if self.ended and not lines:
            raise HungUp("it has hung up")
        return lines

    def read_one(self) -> bytes | None:
        lines = self.read()
        self._arrived = lines[1:]
        return lines[0] if lines else None

    def send(self, line: bytes) -> None:
        """Send a line, now or later. Raises Lost."""
        self._unsent += line + b"\n"
        self._flush()
        if len(self._unsent) > UNSENT_BYTES:
            raise Lost("it reads too little")

    def close(self) -> None:
        self._connection.close()

    def _flush(self) -> None:
        with suppress(OSError):  # full, or gone: reading notices that
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]


def receive(read: Callable[[int], bytes], most: int) -> tuple[bytes, bool]:
    """Return what has arrived, up to about `most` bytes, and whether the other end has closed."""
    received = bytearray()
    while len(received) < most:
        try:
            chunk = read(READ_BYTES)
        except BlockingIOError:
            break
        except OSError:
            chunk = b""
        if not chunk:
            return bytes(received), True
        received += chunk
    return bytes(received), False


MOST_BYTES = 1 << 17
"""Most bytes of a stack: a hundred frames, with names of five hundred characters."""


class StackReply:
    """The connection to a process that sends its stack. Never blocks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = b""
        self.is_whole = False
        """Whether the process has sent all of it, or is gone."""

    def read(self) -> str:
        if not self.is_whole:
            received, has_ended = receive(self._connection.recv, MOST_BYTES - len(self._data))
            self._data += received
            self.is_whole = has_ended or len(self._data) >= MOST_BYTES
            if self.is_whole:
                self._connection.close()
        return self._data[:MOST_BYTES].decode(errors="replace")


def ask(place: Rendezvous, pid: int) -> StackReply | None:
    """Return None if the process does not listen. Never blocks."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        connection.connect(str(place.stack(pid)))
    except OSError:
        connection.close()
        return None
    return StackReply(connection)
