"""The user's command as a dashboard has it: its own child, or on the terminal of a keeper.

Nothing here ends a command by itself, and no method waits, but where a process is started.
"""

import os
import shutil
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from pathlib import Path

from gpudash.errors import UsageError, WorkerError
from gpudash.rendezvous import Rendezvous
from gpudash.run import keeper
from gpudash.run.keeper import Messages, message
from gpudash.run.user_command import UserCommand, environment

ANSWER_S = 2.0
"""A keeper answers at once; one that is stopped does not."""
MARGIN = 4
"""Columns of the screen beside the pane that shows the output."""


class Held(ABC):
    """A command that runs, or has run."""

    exit_code: int | None = None
    """How it ended, negative for a signal; None while it lives or where that is not known."""
    over = False
    """Whether it is known to have ended."""
    lost = False
    """Its terminal is gone, and how it fared is not known."""

    @abstractmethod
    def read(self) -> bytes:
        """Return what it has printed since the last call, and notice its end."""

    @abstractmethod
    def signal(self, number: int) -> None:
        """Send it a signal, as the terminal would if it has one."""

    def type(self, text: str) -> None:  # noqa: B027  # most have a keyboard of their own
        """Type on its terminal."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it; again: nothing."""


class Child(Held):
    """Our child, with our streams and in our process group: as if it had been started alone."""

    def __init__(
        self, command: UserCommand, run: Rendezvous, *, output_to_stderr: bool = False
    ) -> None:
        """Start it. Raises WorkerError."""
        self._place = run.path
        try:
            self._process = subprocess.Popen(
                command.argv,
                env=environment(run),
                stdout=sys.stderr.fileno() if output_to_stderr else None,
            )
        except (OSError, ValueError) as error:
            shutil.rmtree(run.path, ignore_errors=True)
            raise WorkerError(f"{command.name} could not start: {error}") from error
        with suppress(OSError):
            keeper.write_facts(
                run.path,
                name=command.name,
                command=command.argv,
                pid=self._process.pid,
                is_kept=False,
            )

    def read(self) -> bytes:
        """Notice its end."""
        self.exit_code = self._process.poll()
        self.over = self.exit_code is not None
        return b""

    def wait(self) -> int:
        """Wait for its end; return how it ended, negative for a signal."""
        return self._process.wait()

    def signal(self, number: int) -> None:
        """Send the signal to itself alone: the terminal's own reach its children too."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Remove the run's directory, if it has ended."""
        if self._process.poll() is not None:
            shutil.rmtree(self._place, ignore_errors=True)


class Kept(Held):
    """On a keeper's terminal."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._messages = Messages()
        self._unsent = bytearray()
        self._size: os.terminal_size | None = None
        self._is_closed = False

    def read(self) -> bytes:
        """Return what it has printed; tell its terminal of a new size of ours."""
        self._resize()
        self._flush()
        printed = bytearray()
        for kind, payload in self._messages.take(self._receive()):
            if kind == keeper.OUTPUT:
                printed += payload
            elif kind == keeper.EXIT:
                self.exit_code, self.over = int(payload), True
        return bytes(printed)

    def signal(self, number: int) -> None:
        """Send the signal to whom Ctrl-C would reach."""
        self._send(keeper.SIGNAL, str(number))

    def type(self, text: str) -> None:
        """Type on its terminal."""
        self._send(keeper.TYPE, text)

    def close(self) -> None:
        """Have the keeper wait for no other dashboard if the command has ended."""
        if self._is_closed:
            return
        if self.over:
            self._send(keeper.END, "")
        self._is_closed = True
        self._connection.close()

    def _receive(self) -> bytes:
        received = bytearray()
        with suppress(BlockingIOError):
            while not self._is_closed and len(received) < 2 * keeper.KEPT_BYTES:
                try:
                    chunk = self._connection.recv(keeper.READ_BYTES)
                except ConnectionError:
                    chunk = b""
                if not chunk:  # the keeper was killed
                    self.over, self.lost = True, self.exit_code is None
                    break
                received += chunk
        return bytes(received)

    def _resize(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            size = os.get_terminal_size(sys.__stdout__.fileno())  # type: ignore[union-attr]
            if size != self._size:
                self._size = size
                self._send(keeper.SIZE, f"{max(size.columns - MARGIN, 1)} {max(size.lines, 1)}")

    def _send(self, kind: bytes, payload: str) -> None:
        self._unsent += message(kind, payload)
        self._flush()

    def _flush(self) -> None:
        if self._unsent and not self._is_closed:
            with suppress(BlockingIOError, ConnectionError):
                del self._unsent[: self._connection.send(self._unsent)]


class Orphan(Held):
    """What another gpudash had started without a screen, before it was killed."""

    def __init__(self, pid: int, began_ticks: int) -> None:
        self._pid, self._began_ticks = pid, began_ticks

    def read(self) -> bytes:
        """Notice its end; how it ended, only its parent could know."""
        self.over = keeper.began_ticks(self._pid) != self._began_ticks
        return b""

    def signal(self, number: int) -> None:
        """Send the signal to itself alone."""
        self.read()
        if not self.over:
            with suppress(OSError):
                os.kill(self._pid, number)

    def close(self) -> None:
        """Nothing is held."""


def keep(command: UserCommand, run: Rendezvous) -> Kept:
    """Start the command on the terminal of a new keeper. Raises WorkerError."""
    size = shutil.get_terminal_size()
    try:
        with ExitStack() as on_failure:
            on_failure.callback(shutil.rmtree, run.path, ignore_errors=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(run.path / keeper.SOCKET))
                listener.listen()
                number = listener.fileno()
                subprocess.Popen(
                    [
                        *(sys.executable, "-I", "-S", keeper.__file__, str(number)),
                        *(str(run.path), command.name),
                        *(str(max(size.columns - MARGIN, 1)), str(max(size.lines, 1))),
                        *command.argv,
                    ],
                    env=environment(run),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(number,),
                    start_new_session=True,
                )
            connection = _connect(run.path)
            on_failure.pop_all()
    except (OSError, ValueError) as error:
        raise WorkerError(f"{command.name} could not start: {error}") from error
    return Kept(connection)


def attach(place: Path, name: str) -> Kept:
    """Connect to the keeper of a run. Raises UsageError where another dashboard is."""
    try:
        connection = _connect(place)
        connection.settimeout(ANSWER_S)
        head = connection.recv(keeper.HEAD.size, socket.MSG_PEEK)
    except OSError as error:
        raise UsageError(f"{name} has just ended, or its keeper does not answer") from error
    if head[:1] != keeper.PID:
        connection.close()
        raise UsageError(watched(name))
    return Kept(connection)


def watched(name: str) -> str:
    """Return why a command cannot be watched."""
    return f"{name} is watched by another gpudash; only one at a time can"


def _connect(place: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(place / keeper.SOCKET))
    except OSError:
        connection.close()
        raise
    return connection
