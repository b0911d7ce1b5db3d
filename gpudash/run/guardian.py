"""Hold a command that is started only to be measured, so that nothing of it outlives that.

The guardian is a process between gpudash and the command. The kernel gives it the orphans among
the command's descendants, so it loses none. It ends after the last of them. When its connection
to gpudash ends, it ends them all. It runs as a file and imports only the standard library. It has
a process group of its own, which no signal of the terminal reaches; the command is in gpudash's.
"""

import ctypes
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
STARTED, FAILED = b"+", b"-"
"""To gpudash: the command's process id follows, or why it could not start. Of a started one its
exit code follows once all have ended, negative for a signal."""
HAS_BEEN_ASKED = 0
"""From gpudash, as the signals are: the command has had a signal by which it ends."""
ASKING = (HAS_BEEN_ASKED, SIGHUP, SIGINT, SIGTERM)
"""What asks all to end. Any other signal is for the command alone."""
HARDER = ((10.0, SIGTERM), (30.0, SIGKILL))
"""Seconds after that, or after the command's end, and the signal for whoever is left."""
UNWATCHED = ((0.0, SIGTERM), (2.0, SIGKILL))
"""The same after gpudash's end."""
READ_BYTES = 1 << 10
AGAIN_S = 0.5
"""Seconds until the last signal is sent again: somebody may just have started another process."""
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
NOT_OURS = {SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
"""Signals that the guardian cannot survive, or should not. Slurm sends others to all processes."""


class Escalation:
    """Which signals are due, once somebody was asked to end."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int]] = []

    def begin(self, now_s: float, course: Sequence[tuple[float, int]]) -> None:
        self._due = [(now_s + after_s, number) for after_s, number in course]

    @property
    def has_begun(self) -> bool:
        return bool(self._due)

    def wait_s(self, now_s: float) -> float | None:
        return max(self._due[0][0] - now_s, 0.0) if self._due else None

    def take(self, now_s: float) -> Iterator[int]:
        while self._due and self._due[0][0] <= now_s:
            _, number = self._due.pop(0)
            if not self._due:
                self._due = [(now_s + AGAIN_S, number)]
            yield number


class _Guardian:
    """Serves gpudash until the command and all its descendants have ended."""

    def __init__(self, connection: socket.socket, pid: int, group: int, wake: int) -> None:
        """`wake` is readable after the end of a child."""
        self._connection, self._pid, self._group, self._wake = connection, pid, group, wake
        self._escalation = Escalation()
        self._exit: int | None = None
        self._is_watched = True  # gpudash is there

    def run(self) -> None:
        try:
            while not self._reap():
                self._turn()
        finally:  # whatever has gone wrong
            self._signal_all(SIGKILL)
        with suppress(OSError):
            self._connection.sendall(str(self._exit).encode())

    def _reap(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            if pid == self._pid:
                self._exit = os.waitstatus_to_exitcode(status)
                self._harder()

    def _turn(self) -> None:
        reading: list[int | socket.socket] = [self._wake]
        if self._is_watched:
            reading.append(self._connection)
        wait_s = self._escalation.wait_s(time.monotonic())
        ready, _, _ = select.select(reading, [], [], wait_s)
        if self._wake in ready:
            os.read(self._wake, READ_BYTES)
        if self._connection in ready:
            self._listen()
        for number in self._escalation.take(time.monotonic()):
            self._signal_all(number)

    def _listen(self) -> None:
        try:
            received = self._connection.recv(READ_BYTES)
        except OSError:
            received = b""
        for number in received:
            self._pass_on(number)
        if not received:
            self._is_watched = False
            self._escalation.begin(time.monotonic(), UNWATCHED)

    def _pass_on(self, number: int) -> None:
        if number not in ASKING:
            _send(number, [self._pid] if self._exit is None else [])
            return
        if number != HAS_BEEN_ASKED:  # as the terminal would: not those that have left its group
            _send(number, [pid for pid, group in descendants(os.getpid()) if group == self._group])
        self._harder()

    def _signal_all(self, number: int) -> None:
        _send(number, [pid for pid, _ in descendants(os.getpid())])

    def _harder(self) -> None:
        if not self._escalation.has_begun:
            self._escalation.begin(time.monotonic(), HARDER)


def descendants(root: int) -> list[tuple[int, int]]:
    """Return process id and process group of each descendant."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  # pathlib is slow
        with suppress(OSError):  # it has ended
            with open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123  # as above
                about = stat.read().rpartition(b")")[2].split()
            children.setdefault(int(about[1]), []).append((int(name), int(about[2])))
    found = children.get(root, [])
    for pid, _ in found:  # it grows meanwhile
        found += children.get(pid, [])
    return found


def _send(number: int, pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(OSError):  # it has ended, or is another user's by now
            os.kill(pid, number)


def prepare() -> int:
    """Become the parent of orphans; return what is readable after the end of a child."""
    for number in signal.valid_signals() - NOT_OURS:
        # the command inherits what is ignored, and no handler
        if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    return wake


def main() -> None:
    """Guard one command: `guardian.py CONNECTION GROUP COMMAND…`."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    group, command = int(sys.argv[2]), sys.argv[3:]
    wake = prepare()
    try:
        pid = os.posix_spawnp(
            command[0], command, os.environ, setpgroup=group, setsigdef=IGNORED_BY_PYTHON
        )
    except (OSError, ValueError) as error:
        connection.sendall(FAILED + str(error).encode(errors="replace"))
        return
    with suppress(OSError):
        connection.sendall(STARTED + str(pid).encode())
    _Guardian(connection, pid, group, wake).run()


if __name__ == "__main__":
    main()
