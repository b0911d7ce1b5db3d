"""Events of a training process arrive complete and once, whatever interrupts the writing."""

import fcntl
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpudash.instrument.pipes import EventPipe
from gpudash.protocol.session import Notice


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
