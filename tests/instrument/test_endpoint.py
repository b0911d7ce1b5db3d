"""The socket of a training process: one dashboard, of the same user, that delays no step."""

import fcntl
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudash.instrument.endpoint import Endpoint, SocketLine
from gpudash.instrument.pipes import EventPipe
from gpudash.protocol.session import Notice


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "1.sock"


def connected(path: Path) -> tuple[Endpoint, socket.socket, SocketLine]:
    listening = Endpoint(path)
    dashboard = socket.socket(socket.AF_UNIX)
    dashboard.connect(str(path))
    return listening, dashboard, SocketLine(listening.accept(), rank=3)


def test_the_socket_is_private_and_removed_at_the_end(path) -> None:
    listening = Endpoint(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert listening.accept() is None  # it does not wait
    listening.close()
    assert not path.exists()


def test_the_socket_of_an_earlier_process_with_the_same_id_is_replaced(path) -> None:
    Endpoint(path).forget()
    listening, dashboard, _ = connected(path)
    listening.close()
    dashboard.close()


def test_another_user_is_turned_away(path, monkeypatch) -> None:
    listening = Endpoint(path)
    with socket.socket(socket.AF_UNIX) as dashboard:
        dashboard.connect(str(path))
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert listening.accept() is None
        assert dashboard.recv(1) == b""


def descriptors() -> set[int]:
    return {int(one.name) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()}


def test_a_descriptor_that_the_script_reused_is_left_alone(path, tmp_path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"its own\n")
    with file.open("r+b") as opened:
        before = descriptors()
        listening, dashboard, line = connected(path)
        ours = descriptors() - before - {dashboard.fileno()}
        assert len(ours) == 2
        for one in ours:
            os.dup2(opened.fileno(), one)
        line.send(Notice(text="hello"))
        assert line.gone
        assert line.read() == []
        listening.accept()
        listening.close()
        assert all(os.path.sameopenfile(one, opened.fileno()) for one in ours)
        assert opened.tell() == 0
        assert file.read_bytes() == b"its own\n"
        for one in ours:
            os.close(one)
    dashboard.close()


def test_after_the_script_closed_all_descriptors_a_dashboard_may_connect(path) -> None:
    before = descriptors()
    listening, dashboard, line = connected(path)
    for one in descriptors() - before - {dashboard.fileno()}:
        os.close(one)
    assert line.read() == []
    assert dashboard.recv(1) == b""
    dashboard.close()
    assert listening.accept() is None
    with socket.socket(socket.AF_UNIX) as another:
        another.connect(str(path))
        listening.accept().close()
    listening.close()
    assert not path.exists()


@pytest.mark.parametrize(
    "nonsense",
    [
        b"{}\n",
        b'"\xff"\n',
        b'{"type":"Reboot","id":1}\n',
        b'{"type":"Change","id":1,"settings":{"precision":"\xff"}}\n',
        b'{"x":' + b"[" * 10_000 + b"\n",
        None,  # it has gone
    ],
)
def test_an_invalid_command_or_its_end_ends_the_connection(path, nonsense) -> None:
    _, dashboard, line = connected(path)
    dashboard.sendall(nonsense) if nonsense else dashboard.close()
    line.wait(10)
    assert line.read() == []
    assert line.gone


def test_writing_to_a_closed_connection_raises_no_sigpipe(path) -> None:
    listening, dashboard, line = connected(path)
    dashboard.close()
    child = os.fork()
    if not child:
        import signal

        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as some scripts do
        line.send(Notice(text="to nobody"))
        os._exit(0 if line.gone else 1)
    assert os.waitpid(child, 0)[1] == 0
    listening.close()


def test_a_default_socket_timeout_of_the_scripts_delays_nothing(path) -> None:
    socket.setdefaulttimeout(1)
    try:
        _, dashboard, line = connected(path)
    finally:
        socket.setdefaulttimeout(None)
    for _ in range(200):  # more than a socket takes
        line.send(Notice(text="x" * 10_000))
    assert not line.gone
    dashboard.close()


# ── whatever interrupts the writing ───────────────────────────────────────────────────────


def over_a_pipe() -> tuple[int, EventPipe]:
    reading, writing = os.pipe()
    return reading, EventPipe(writing)


def over_a_socket() -> tuple[int, EventPipe]:
    reading, writing = socket.socketpair()
    fd = writing.fileno()
    return reading.detach(), EventPipe(fd, 0, writing.send, socket.MSG_NOSIGNAL)


class HandlerRaisesError(Exception):
    pass


@contextmanager
def raising_once_written(reading: int) -> Iterator[None]:
    """Have a signal arrive, whose handler raises, as soon as there is something to read."""

    def handler(*_: object) -> None:
        raise HandlerRaisesError

    before = signal.signal(signal.SIGIO, handler)
    fcntl.fcntl(reading, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        yield
    finally:
        fcntl.fcntl(reading, fcntl.F_SETFL, os.O_NONBLOCK)
        signal.signal(signal.SIGIO, before)


@pytest.mark.parametrize("connected", [over_a_pipe, over_a_socket])
def test_a_line_is_sent_once_even_if_a_signal_handler_raises(
    connected: Callable[[], tuple[int, EventPipe]],
) -> None:
    reading, events = connected()
    with raising_once_written(reading), pytest.raises(HandlerRaisesError):
        events.send(Notice(text="one"))
    assert events.kept_bytes == 0
    events.send(Notice(text="two"))
    one, two = os.read(reading, 1 << 16).splitlines()
    assert b"one" in one
    assert b"two" in two
