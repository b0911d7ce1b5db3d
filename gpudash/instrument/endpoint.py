"""The Unix socket where a dashboard connects to a training process.

A dashboard that reads too slowly is disconnected, and may connect again. A script may close all
descriptors and open its own files in their place: those are never read, written or closed here.
"""

import contextlib
import os
import select
import socket
import struct
import time
from pathlib import Path

from ..errors import UNDECODABLE
from ..protocol.commands import CommandOrFigures
from .pipes import CommandPipe, EventPipe, ParentGone, Sent

MOST_BYTES = 8 << 20
"""Unread bytes kept for a dashboard: about a minute of short steps."""
RETRY_S = 0.01
"""Pause before the next try: without a descriptor left none succeeds, and it is no busy wait."""
PEER = struct.Struct("3i")
"""Process, user and group of the peer, as the kernel reports them."""


class _Owned:
    """A socket of ours. It is never closed if the script has reused its descriptor."""

    def __init__(self, made: socket.socket) -> None:
        self.socket = made
        self._descriptor = _Descriptor(made.fileno())

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0 and self._descriptor.is_ours

    def close(self) -> None:
        if self.is_open:
            self.socket.close()
        else:
            self.socket.detach()


class SocketLine:
    """The connection to one dashboard. No method raises if the dashboard is gone."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self._connection = _Owned(connection)
        # a script may have reset SIGPIPE to its default, which ends the process
        self._events = EventPipe(connection.fileno(), rank, connection.send, socket.MSG_NOSIGNAL)
        self._commands = CommandPipe(connection.fileno())
        self.gone = False
        """Whether the dashboard is gone."""

    def send(self, event: Sent) -> None:
        if self._is_lost():
            return
        try:
            self._events.send(event)
        except ParentGone:
            self.close()
        if self._events.kept_bytes > MOST_BYTES:
            self.close()

    def read(self) -> list[CommandOrFigures]:
        if self._is_lost():
            return []
        try:
            return self._commands.read()
        except (ParentGone, *UNDECODABLE):
            self.close()
            return []

    def wait(self, timeout_s: float) -> None:
        if not self._is_lost():
            self._commands.wait(timeout_s)

    def close(self) -> None:
        self.gone = True
        self._connection.close()

    def _is_lost(self) -> bool:
        if not (self.gone or self._connection.is_open):
            self.close()
        return self.gone


class Endpoint:
    """The socket that dashboards connect to."""

    def __init__(self, path: Path) -> None:
        """Have the path appear once connecting works. Raises OSError."""
        self._path = path
        self._is_over = False
        self._listening = self._listen()

    def _listen(self) -> _Owned:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        unseen = self._path.with_name(f"{self._path.name}~")
        try:
            unseen.unlink(missing_ok=True)  # of an earlier process with our id
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
        try:
            if not self._listening.is_open:
                self._listening.close()
                self._listening = self._listen()
            connection, _ = self._listening.socket.accept()
        except OSError:  # none waits, or it is gone again, or no descriptor is left
            return None
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        _, user, _ = PEER.unpack(peer)
        if user != os.geteuid():
            connection.close()
            return None
        connection.setblocking(False)  # a script may set a default timeout
        return connection

    def wait(self) -> socket.socket:
        """May raise OSError, once `end` was called on another thread."""
        while not self._is_over:
            arrived = select.poll()  # anew: the script may have closed what was listened at
            arrived.register(self._listening.socket, select.POLLIN)
            arrived.poll()
            if (connection := self.accept()) is not None:
                return connection
            time.sleep(RETRY_S)
        raise OSError("it listens no more")

    def end(self) -> None:
        self._is_over = True
        with contextlib.suppress(OSError):
            self._listening.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits; `close` does not
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        self.forget()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def forget(self) -> None:
        self._listening.close()


class _Descriptor:
    """A file descriptor of ours."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._file = _file_at(fd)

    @property
    def is_ours(self) -> bool:
        return _file_at(self._fd) == self._file


def _file_at(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
