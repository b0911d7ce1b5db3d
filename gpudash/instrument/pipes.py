"""The training process's ends of its pipes: events out, commands in. No step waits for them."""

import os
import select
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from ..protocol.commands import CommandOrFigures
from ..protocol.envelope import Envelope, Event
from ..protocol.records import Decoder, encode
from .wire import StepReport, encoded

READ_BYTES = 1 << 16
Sent: TypeAlias = Event | StepReport
"""What a training process sends."""


class ParentGone(Exception):  # noqa: N818  # it is an event, not an error
    """No parent reads or commands this process any more."""


class EventPipe:
    """The pipe for events."""

    def __init__(
        self, fd: int, rank: int = 0, write: Callable[..., int] | None = None, *flags: int
    ) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._rank = rank
        self._write = write or partial(os.write, fd)
        self._flags = [(flag,) for flag in flags]
        self._sent = 0
        self._unsent: tuple[bytearray, list[int]] = bytearray(), []
        """Bytes that the pipe has not taken, and counts of those taken from their front since."""

    @property
    def kept_bytes(self) -> int:
        pending, taken = self._unsent
        return len(pending) - sum(taken)

    def send(self, event: Sent) -> None:
        """May raise ParentGone. What the pipe does not take now is kept."""
        rank, seq, now_s = self._rank, self._sent, time.monotonic()
        if isinstance(event, StepReport):
            line = encoded(event, rank, seq, now_s)
        else:
            envelope = Envelope(source="training", rank=rank, seq=seq, sent_s=now_s, body=event)
            line = encode(envelope)
        self._sent += 1
        self._unsent[0].extend(line + b"\n")
        self.flush()

    def flush(self) -> None:
        """May raise ParentGone."""
        while True:
            pending, taken = self._unsent
            if taken:
                pending, taken = self._unsent = pending[sum(taken) :], []
            if not pending:
                return
            try:
                # one call into C: a signal handler may raise right after the write, and without the
                # count a line would be sent twice
                taken.extend(map(self._write, (pending,), *self._flags))
            except BlockingIOError:
                return
            except ConnectionError as error:
                raise ParentGone from error

    def drain(self) -> None:
        """Wait for the reader: for the end, when no step is delayed."""
        self.flush()
        while self.kept_bytes:
            select.select([], [self._fd], [])
            self.flush()


class CommandPipe:
    """The pipe for commands."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._partial = b""
        self._decoder = Decoder[CommandOrFigures](CommandOrFigures)
        self._arrived = select.poll()  # select takes no descriptor above 1023
        self._arrived.register(fd, select.POLLIN)

    def read(self) -> list[CommandOrFigures]:
        """May raise ParentGone, at end of file."""
        try:
            received = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return []
        except ConnectionError as error:
            raise ParentGone from error
        if not received:
            raise ParentGone
        *lines, self._partial = (self._partial + received).split(b"\n")
        return [self._decoder.decode(line) for line in lines]

    def wait(self, timeout_s: float) -> bool:
        return bool(self._arrived.poll(timeout_s * 1e3))
