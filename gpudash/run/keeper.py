"""Hold the terminal of a user's command, so that dashboards may connect, leave and die.

The keeper is a process of its own, which starts the command on a pseudo-terminal, serves one
dashboard at a time, and ends after the command. It runs as a file and imports only the standard
library: so it stays small, and the command's environment is not changed.
"""

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

OUTPUT, PID, EXIT, BUSY = b"o", b"p", b"x", b"b"
"""To the dashboard: printed bytes; the command's process id; its exit code, negative for a signal;
another dashboard is connected."""
TYPE, SIZE, SIGNAL, END = b"t", b"w", b"s", b"e"
"""From the dashboard: typed text; columns and rows; a signal for the terminal's foreground
processes; no dashboard will come back after the command's end."""
HEAD = struct.Struct(">cI")
"""A message's header: its kind, and the number of bytes that follow."""
PEER = struct.Struct("3i")
"""Process, user and group of the other end."""
SOCKET, FACTS = "output.sock", "run.json"
"""Names in the run's directory."""
KEPT_BYTES = 1 << 20
"""Newest output that is kept for the next dashboard."""
TYPED_BYTES = 1 << 16
"""Typed bytes that the command has not read yet; more are dropped."""
READ_BYTES = 1 << 16
QUIET_S = 0.2
"""Seconds that the last output may take after the command's end, if children hold the terminal."""
LINGER_S = 5.0
"""Seconds that a dashboard may connect after the command's end."""
LEFT_OUT = b"\r\n[output left out: too much at once]\r\n"
OF_A_SHELL = ("INT", "QUIT", "TERM", "HUP", "TSTP", "TTIN", "TTOU", "PIPE", "XFSZ", "CHLD")
"""Signals that are reset to their defaults for the command."""


def message(kind: bytes, payload: bytes | str = b"") -> bytes:
    body = payload.encode() if isinstance(payload, str) else payload
    return HEAD.pack(kind, len(body)) + body


class Messages:
    """Decodes messages from received pieces."""

    def __init__(self) -> None:
        self._received = bytearray()

    def take(self, received: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._received += received
        while len(self._received) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._received)
            if len(self._received) < HEAD.size + length:
                return
            payload = bytes(self._received[HEAD.size : HEAD.size + length])
            del self._received[: HEAD.size + length]
            yield kind, payload


def write_facts(
    directory: Path,
    *,
    name: str,
    command: Sequence[str],
    pid: int,
    is_kept: bool,
    is_notebook: bool = False,
) -> None:
    facts = {
        "name": name,
        "command": command,
        "cwd": os.getcwd(),  # noqa: PTH109  # a string is wanted
        "pid": pid,
        "is_kept": is_kept,
        "is_notebook": is_notebook,
        "processes": [(one, began_ticks(one)) for one in (pid, os.getpid())],
        "space": space(),
        "host": socket.gethostname(),
        "started_s": time.time(),
    }
    _hold(directory)
    draft = directory / f"{FACTS}.draft"
    draft.write_bytes(json.dumps(facts, ensure_ascii=False).encode(errors="replace"))
    draft.replace(directory / FACTS)


def began_ticks(pid: int) -> int:
    """Return the kernel's ticks; -1 if the process is not alive."""
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return -1
    return -1 if state in b"ZX" else int(numbers[18])


def _hold(directory: Path) -> None:
    """Keep what removes old files in /tmp from this directory, until this process ends."""
    with suppress(OSError):  # a file system without locks
        fcntl.flock(os.open(directory, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)


def space() -> str:
    """Return the PID namespace and the machine's boot: other nodes may share the folder."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{os.readlink('/proc/self/ns/pid')} {boot}"  # noqa: PTH115  # its target is no file
    except OSError:
        return ""


class _Viewer:
    """A connection that delays nothing: output that the dashboard does not read is left out."""

    def __init__(self, connection: socket.socket, pid: int, kept: bytes) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.messages = Messages()
        self._leaving = bytearray(message(PID, str(pid)))
        self._output = bytearray(kept)

    @property
    def waits(self) -> bool:
        return bool(self._leaving or self._output)

    def show(self, printed: bytes) -> None:
        self._output += printed
        if len(self._output) > 2 * KEPT_BYTES:
            self._output[:-KEPT_BYTES] = LEFT_OUT

    def queue(self, kind: bytes, payload: str) -> None:
        self._pack()
        self._leaving += message(kind, payload)

    def flush(self) -> None:
        if not self._leaving:
            self._pack()
        with suppress(OSError):  # full, or gone: reading notices that
            del self._leaving[: self.connection.send(self._leaving)]

    def _pack(self) -> None:
        if self._output:
            self._leaving += message(OUTPUT, bytes(self._output))
            self._output.clear()


class _Keeper:
    """Serves dashboards until the command has ended and none needs its output any more."""

    def __init__(self, listener: socket.socket, master: int, slave: int, pid: int) -> None:
        listener.setblocking(False)
        os.set_blocking(master, False)
        self._listener, self._master, self._slave, self._pid = listener, master, slave, pid
        self._children, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda number, _: self._signal(number))
        self._dashboard: _Viewer | None = None
        self._kept = bytearray()
        self._typed = bytearray()
        self._exit: int | None = None
        self._exited_s = 0.0
        self._hung_up = False  # no process holds the terminal any more
        self._exit_sent = False
        self._ends = False  # no dashboard will come back
        self._alone_since_s = time.monotonic()

    def run(self) -> None:
        self._reap()  # it may have ended before SIGCHLD was handled
        while not self._is_over():
            self._turn()

    def _is_over(self) -> bool:
        if not (self._exit_sent and self._hung_up) or self._dashboard is not None:
            return False
        return self._ends or time.monotonic() - self._alone_since_s > LINGER_S

    def _turn(self) -> None:
        reading: list[int | socket.socket] = [self._listener, self._children]
        writing: list[int | socket.socket] = []
        if not self._hung_up:
            reading.append(self._master)
        if self._typed and not self._hung_up:
            writing.append(self._master)
        if self._dashboard is not None:
            reading.append(self._dashboard.connection)
            if self._dashboard.waits:
                writing.append(self._dashboard.connection)
        ready, _, _ = select.select(reading, writing, [], None if self._exit is None else QUIET_S)
        if self._children in ready:
            os.read(self._children, READ_BYTES)
            self._reap()
        if self._master in ready:
            self._take_output()
        if self._listener in ready:
            self._accept()
        if self._typed:
            self._pass_typed()
        self._send_exit()
        self._serve()

    def _reap(self) -> None:
        """Notice the command's end; from then on only its children hold the terminal."""
        if self._exit is not None:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._exit = os.waitstatus_to_exitcode(status)
            self._exited_s = self._alone_since_s = time.monotonic()
            os.close(self._slave)

    def _take_output(self) -> None:
        try:
            printed = os.read(self._master, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # Linux's answer if no process holds the terminal
            printed = b""
        self._hung_up = not printed
        self._kept += printed
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]
        if self._dashboard is not None:
            self._dashboard.show(printed)

    def _send_exit(self) -> None:
        if self._exit is None or self._exit_sent:
            return
        if self._hung_up or time.monotonic() - self._exited_s > QUIET_S:
            self._exit_sent = True
            if self._dashboard is not None:
                self._dashboard.queue(EXIT, str(self._exit))

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has disconnected already
            return
        if _user(connection) != os.geteuid():
            connection.close()
            return
        if self._dashboard is not None:
            with connection, suppress(OSError):
                connection.sendall(message(BUSY))
            return
        self._dashboard = _Viewer(connection, self._pid, bytes(self._kept[-KEPT_BYTES:]))
        if self._exit_sent:
            self._dashboard.queue(EXIT, str(self._exit))

    def _serve(self) -> None:
        dashboard = self._dashboard
        if dashboard is None:
            return
        dashboard.flush()
        try:
            received = dashboard.connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        for kind, payload in dashboard.messages.take(received):
            self._obey(kind, payload)
        if not received:
            dashboard.connection.close()
            self._dashboard, self._alone_since_s = None, time.monotonic()

    def _obey(self, kind: bytes, payload: bytes) -> None:
        if kind == TYPE and len(self._typed) + len(payload) <= TYPED_BYTES:
            self._typed += payload
        elif kind == SIZE:
            columns, rows = map(int, payload.split())
            _set_size(self._master, columns, rows)
        elif kind == SIGNAL:
            self._signal(int(payload))
        elif kind == END:
            self._ends = True

    def _pass_typed(self) -> None:
        with suppress(OSError):  # full, or no reader
            del self._typed[: os.write(self._master, self._typed)]

    def _signal(self, number: int) -> None:
        if self._exit is None:
            with suppress(OSError):
                os.killpg(os.tcgetpgrp(self._master), number)


def _user(connection: socket.socket) -> int:
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    return int(PEER.unpack(peer)[1])


def _set_size(fd: int, columns: int, rows: int) -> None:
    """Set a terminal's size; its foreground processes receive SIGWINCH."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _open_terminal(columns: int, rows: int) -> tuple[int, int]:
    """Make the new terminal this session's controlling one; return both ends."""
    master, slave = pty.openpty()
    _set_size(slave, columns, rows)
    modes = termios.tcgetattr(slave)
    modes[6][termios.VSUSP] = b"\0"  # nothing could resume it after Ctrl-Z
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    return master, slave


def start(command: list[str], slave: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        os.tcsetpgrp(slave, os.getpid())
        for end in (0, 1, 2):
            os.dup2(slave, end)
        for name in OF_A_SHELL:
            signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(command[0], command)  # noqa: S606  # the user's own words
    except OSError as error:
        os.write(2, f"gpudash: cannot start {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)  # as a shell does


def main() -> None:
    """Keep one command: `keeper.py LISTENER DIRECTORY NAME COLUMNS ROWS COMMAND…`."""
    listener, directory, name, columns, rows, *command = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTTOU, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(int(listener), False)
    master, slave = _open_terminal(int(columns), int(rows))
    pid = start(command, slave)
    place = Path(directory)
    with suppress(OSError):  # a full disk: `gpudash attach` cannot find it
        write_facts(place, name=name, command=command, pid=pid, is_kept=True)
    try:
        _Keeper(socket.socket(fileno=int(listener)), master, slave, pid).run()
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
