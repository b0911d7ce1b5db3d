"""Hold the user's command: as a child process, or on the terminal of a keeper.

Nothing here ends a command by itself. No method blocks, except where a process is started.
"""

import os
import shutil
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

from gpudash.errors import UsageError, WorkerError
from gpudash.format import plain
from gpudash.protocol.training import Ability
from gpudash.rendezvous import Rendezvous
from gpudash.run import keeper
from gpudash.run.keeper import Messages, message
from gpudash.run.lines import receive
from gpudash.run.turns import Claim
from gpudash.run.user_command import UserCommand, environment

ANSWER_S = 2.0
"""Seconds to wait for a keeper's answer; only a stopped keeper needs longer."""
MARGIN = 4
"""Columns of the screen beside the pane that shows the output."""


UNCHANGED: tuple[Ability, ...] = ("record", "profile", "stacks")
CHANGED: tuple[Ability, ...] = (*UNCHANGED, "levers", "pause", "blocks", "memory", "leave")


class CommandProcess(ABC):
    """A command that runs, or has run."""

    can: tuple[Ability, ...] = UNCHANGED
    """What may be asked of its training."""
    is_ours = False
    """Whether it ends with gpudash, which may kill it. Its training stops at a step."""
    exit_code: int | None = None
    """Exit code, negative for a signal; None while the command runs or if unknown."""
    over = False
    """Whether the command is known to have ended."""
    lost = False
    """Whether the terminal is gone and the command's state unknown."""
    stops: tuple[int, ...] = (SIGINT, SIGTERM, SIGKILL)
    """The signals of successive requests to end; the last one is sent again."""
    prints_to = ""
    """Where its output goes, in words, if `read` cannot return it and the user is elsewhere."""

    @abstractmethod
    def read(self) -> bytes:
        """Return the output since the last call, and notice the command's end."""

    @abstractmethod
    def signal(self, number: int) -> None:
        """Send the command a signal; on a keeper's terminal, as the terminal would."""

    def type(self, text: str) -> None:  # noqa: B027  # most have the user's own terminal
        """Type on the command's terminal."""

    @abstractmethod
    def close(self) -> None:
        """Release the command; a second call does nothing."""


class Foreground(CommandProcess):
    """A child with gpudash's streams and process group: as if it had been started directly."""

    def __init__(
        self,
        command: UserCommand,
        run: Rendezvous,
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        """Start the command, with other streams if they are given. Raises WorkerError."""
        self._place = run.path
        try:
            pid = self._begin(command, run, stdout, stderr)
        except (OSError, ValueError) as error:
            shutil.rmtree(run.path, ignore_errors=True)
            raise WorkerError(f"{command.name} could not start: {error}") from error
        with suppress(OSError):
            keeper.write_facts(
                run.path, name=command.name, command=command.argv, pid=pid, is_kept=False
            )

    def _begin(
        self, command: UserCommand, run: Rendezvous, stdout: int | None, stderr: int | None
    ) -> int:
        self._process = subprocess.Popen(
            command.argv,
            env=environment(run, command),
            cwd=command.folder,
            stdout=stdout,
            stderr=stderr,
        )
        return self._process.pid

    def read(self) -> bytes:
        """Notice the command's end alone: its output goes to the terminal."""
        code = self._process.poll()
        if code is not None:
            self.exit_code, self.over = self._code(code), True
        return b""

    def wait(self) -> int:
        return self._code(self._process.wait())

    def _code(self, code: int) -> int:
        return code

    def signal(self, number: int) -> None:
        """Send the signal to the command alone; the terminal's signals reach its children too."""
        self._process.send_signal(number)

    def close(self) -> None:
        if self._process.poll() is not None:
            shutil.rmtree(self._place, ignore_errors=True)


class _OnTerminal(CommandProcess):
    """A command on a keeper's terminal."""

    can = (*CHANGED, "type")

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._messages = Messages()
        self._unsent = bytearray()
        self._size: os.terminal_size | None = None
        self._is_closed = False

    def read(self) -> bytes:
        """Pass on a new size of the user's terminal."""
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
        self._send(keeper.SIGNAL, str(number))

    def type(self, text: str) -> None:
        self._send(keeper.TYPE, text)

    def close(self) -> None:
        if self._is_closed:
            return
        if self.over:
            self._send(keeper.END, "")
        self._is_closed = True
        self._connection.close()

    def _receive(self) -> bytes:
        if self._is_closed:
            return b""
        received, has_ended = receive(self._connection.recv, 2 * keeper.KEPT_BYTES)
        if has_ended:  # the keeper was killed
            self.over, self.lost = True, self.exit_code is None
        return received

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


class Adopted(CommandProcess):
    """A command that has its own terminal or none, and may be watched without a screen."""

    can = CHANGED

    def __init__(self, place: Path, name: str, process: tuple[int, int]) -> None:
        """Raise UsageError if another gpudash keeps the watch."""
        self._place, self._process = place, process
        self.prints_to = self.prints_to or _output_of(process[0])
        try:
            self._claim = Claim(place)
        except BlockingIOError as error:
            raise UsageError(watched(name)) from error
        except OSError as error:
            why = f"{error.strerror}: {error.filename or place}"
            raise UsageError(f"{name} has just ended, or cannot be watched: {why}") from error
        if not self._claim.is_granted_within(ANSWER_S):
            self._claim.close()
            raise UsageError(watched(name))

    def read(self) -> bytes:
        """Only the command's parent could know its exit code."""
        pid, began_ticks = self._process
        self.over = keeper.began_ticks(pid) != began_ticks
        return b""

    def signal(self, number: int) -> None:
        self.read()
        if not self.over:
            with suppress(OSError):
                os.kill(self._process[0], number)

    def close(self) -> None:
        """Leave the training to the gpudash without a screen."""
        self._claim.close()


class Kernel(Adopted):
    """The kernel of a notebook. It is interrupted, as by its own button, and never ended."""

    stops = (SIGINT,)

    prints_to = "its notebook"

    def read(self) -> bytes:
        """Notice the kernel's end, and that `%unload_ext` has taken gpudash out of it."""
        super().read()
        self.over = self.over or not self._place.exists()
        return b""


def keep(command: UserCommand, run: Rendezvous) -> _OnTerminal:
    """Start the command on the terminal of a new keeper. Raises WorkerError."""
    size = shutil.get_terminal_size()
    try:
        with ExitStack() as on_failure:
            on_failure.callback(shutil.rmtree, run.path, ignore_errors=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(run.path / keeper.SOCKET))
                (run.path / keeper.SOCKET).chmod(0o600)
                listener.listen()
                number = listener.fileno()
                subprocess.Popen(
                    [
                        *(sys.executable, "-I", "-S", keeper.__file__, str(number)),
                        *(str(run.path), command.name),
                        *(str(max(size.columns - MARGIN, 1)), str(max(size.lines, 1))),
                        *command.argv,
                    ],
                    env=environment(run, command),
                    cwd=command.folder,
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
    return _OnTerminal(connection)


def attach(place: Path, name: str) -> _OnTerminal:
    """Raise UsageError if another dashboard is connected."""
    try:
        connection = _connect(place)
        connection.settimeout(ANSWER_S)
        head = connection.recv(keeper.HEAD.size, socket.MSG_PEEK)
    except OSError as error:
        raise UsageError(f"{name} has just ended, or its keeper does not answer") from error
    if head[:1] != keeper.PID:
        connection.close()
        raise UsageError(watched(name))
    return _OnTerminal(connection)


def _output_of(pid: int) -> str:
    try:
        place = str(Path(f"/proc/{pid}/fd/1").readlink())
    except OSError:
        place = ""
    if place.startswith("/dev/pts/"):
        return f"the terminal it was started on, {place}"
    return plain(place) if place.startswith("/") else "whoever started it"


def watched(name: str) -> str:
    return f"{name} is watched by another gpudash; only one at a time can"


def _connect(place: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(place / keeper.SOCKET))
    except OSError:
        connection.close()
        raise
    return connection
