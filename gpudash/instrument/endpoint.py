"""Where a dashboard reaches a training process: a Unix socket.

One dashboard at a time, and of this user alone. In a user's script nothing waits for it, and one
that reads too little is let go of: it may come again. A script may close all descriptors that it
finds, and open its own files in their place: those are never read, written or closed.
"""

import contextlib
import os
import select
import socket
import struct
from pathlib import Path

from gpudash.errors import UNDECODABLE
from gpudash.instrument.descriptor import Descriptor
from gpudash.instrument.pipes import CommandPipe, EventPipe, ParentGone
from gpudash.protocol import AnyCommand, Event

MOST_BYTES = 8 << 20
"""What is kept for a dashboard that does not read: about a minute of short steps."""
PEER = struct.Struct("3i")
"""Process, user and group at a socket's other end, as the kernel tells them."""


class _Owned:
    """A socket, which is never closed in the script's place."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self._descriptor = Descriptor(made.fileno())

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0 and self._descriptor.is_ours

    def close(self) -> None:
        if self.is_open:
            self.socket.close()
        else:
            self.socket.detach()


class Line:
    """The connection to one dashboard. No method raises for a dashboard that is gone."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self._connection = _Owned(connection)
        # a script may have set SIGPIPE back to what ends a process
        self._events = EventPipe(connection.fileno(), rank, connection.send, socket.MSG_NOSIGNAL)
        self._commands = CommandPipe(connection.fileno())
        self.gone = False
        """Whether nobody is there any more."""

    def send(self, event: Event) -> None:
        """Tell it, as far as the socket takes it now."""
        if self._is_lost():
            return
        try:
            self._events.send(event)
        except ParentGone:
            self.close()
        if self._events.kept_bytes > MOST_BYTES:
            self.close()

    def read(self) -> list[AnyCommand]:
        """Return the commands that have arrived; one that makes no sense ends the connection."""
        if self._is_lost():
            return []
        try:
            return self._commands.read()
        except (ParentGone, *UNDECODABLE):
            self.close()
            return []

    def wait(self, timeout_s: float) -> None:
        """Sleep until something has arrived, at most so long."""
        if not self._is_lost():
            self._commands.wait(timeout_s)

    def close(self) -> None:
        """Hang up."""
        self.gone = True
        self._connection.close()

    def _is_lost(self) -> bool:
        if not (self.gone or self._connection.is_open):
            self.close()
        return self.gone


class Endpoint:
    """The socket that dashboards connect to."""

    def __init__(self, path: Path) -> None:
        """Listen there; where it can be seen, it is listened to. Raises OSError."""
        self._path = path
        self._listening = self._listen()

    def _listen(self) -> _Owned:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unseen = self._path.with_name(f"{self._path.name}~")
        try:
            unseen.unlink(missing_ok=True)  # of a process that had our number
            listening.setblocking(False)
            listening.bind(str(unseen))
            unseen.chmod(0o600)
            listening.listen()
            unseen.rename(self._path)
        except OSError:
            listening.close()
            raise
        return _Owned(listening)

    def accept(self) -> socket.socket | None:
        """Return a connection of this user's that has come since; None without one."""
        try:
            if not self._listening.is_open:
                self._listening.close()
                self._listening = self._listen()
            connection, _ = self._listening.socket.accept()
        except OSError:  # none waits, or it has gone again, or no descriptor is left
            return None
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        _, user, _ = PEER.unpack(peer)
        if user != os.geteuid():
            connection.close()
            return None
        connection.setblocking(False)  # a script may have set a timeout for all new sockets
        return connection

    def wait(self) -> socket.socket:
        """Return the first connection of this user's, however long that takes."""
        arrived = select.poll()
        arrived.register(self._listening.socket, select.POLLIN)
        while (connection := self.accept()) is None:
            arrived.poll()
        return connection

    def close(self) -> None:
        """Listen no more, and leave nothing behind."""
        self.forget()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def forget(self) -> None:
        """Give up what a forked child has inherited: the parent goes on listening."""
        self._listening.close()
