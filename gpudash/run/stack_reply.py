"""Ask a training process where it is, without waiting; see `instrument.stack_server`."""

import socket

from gpudash.rendezvous import Rendezvous

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
        """Return what has come of the stack."""
        while not self.is_whole:
            try:
                more = self._connection.recv(MOST_BYTES)
            except BlockingIOError:
                break
            except OSError:  # it has ended
                more = b""
            self._data += more
            if not more or len(self._data) >= MOST_BYTES:
                self.is_whole = True
                self._connection.close()
        return self._data[:MOST_BYTES].decode(errors="replace")


def ask(place: Rendezvous, pid: int) -> StackReply | None:
    """Ask the process; None if it does not listen. Never blocks."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        connection.connect(str(place.stack(pid)))
    except OSError:
        connection.close()
        return None
    return StackReply(connection)
