"""Define sources, which a session reads and sends commands to; the queue of requests to it."""

import os
import select
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

import msgspec

from gpudash.errors import UNDECODABLE, SourceError
from gpudash.protocol.commands import AnyCommand, Figures
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import PROTOCOL_VERSION, Printed, State
from gpudash.run.lines import StackReply

MOST_LINES = 32
"""Most lines of a message, so that a log's reader accepts it, whatever is printed."""


class Source(ABC):
    """A source of messages. No method blocks, except `close` for a moment."""

    is_ours = True
    """Whether gpudash may kill it after an unobeyed Stop; never true of a user's command."""
    meters = False
    """Whether it sends the ticks of energy counters."""
    joined = False
    """Whether the training had begun before it was watched."""

    @property
    def filenos(self) -> tuple[int, ...]:
        """Descriptors to poll for reading; the source is also read at intervals."""
        return ()

    @abstractmethod
    def read(self) -> list[Envelope]:
        """Send unsent commands too. Raises SourceError if a message cannot be decoded."""

    def send(self, command: AnyCommand, /) -> None:  # noqa: B027  # most take no commands
        """Send a command."""

    def track(self, figures: Figures, /) -> None:  # noqa: B027  # only scripts have one
        """Hand figures to the run that the training has open in W&B."""

    def type(self, text: str, /) -> None:  # noqa: B027  # most have no terminal
        """Type on the terminal of the user's command."""

    def stack(self) -> StackReply | None:
        """Ask rank 0's process where it is; None if nobody can be asked."""
        return None

    def watch(self, state: State, /, rank: int = 0) -> None:  # noqa: B027  # for telemetry
        """Read this rank's device and processes from now on, if the source reads any."""

    def forget(self) -> None:  # noqa: B027  # as `watch`
        """Note that all watched ranks have ended."""

    def ended(self) -> str | None:
        """Return how the source ended, as a sentence; None while messages may come."""
        return None

    @abstractmethod
    def close(self) -> None:
        """End the source and clean up; a second call does nothing."""


def printed(lines: Sequence[str], replaces: int = 0) -> Iterator[Printed]:
    """Yield messages with these lines, the first of which `replaces` earlier lines."""
    if lines or replaces:
        yield Printed(lines=tuple(lines[:MOST_LINES]), replaces=replaces)
    for at in range(MOST_LINES, len(lines), MOST_LINES):
        yield Printed(lines=tuple(lines[at : at + MOST_LINES]))


ENVELOPES = msgspec.json.Decoder(Envelope)
"""Built on import: msgspec crashes if one thread uses types while another one resolves them."""


class Decoder:
    """Decodes a source's lines; the first one has to be a Hello of this protocol version."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_known = False

    def decode(self, line: bytes) -> Envelope:
        """Return the line's message. Raises SourceError or UNDECODABLE."""
        if not self._is_known:
            self._check(line)
        return ENVELOPES.decode(line)

    def _check(self, line: bytes) -> None:
        try:
            version = msgspec.json.decode(line)[-1]["protocol"]
        except (*UNDECODABLE, LookupError, TypeError) as error:
            raise SourceError(f"{self._name} does not speak gpudash's protocol") from error
        if version != PROTOCOL_VERSION:
            raise SourceError(
                f"{self._name} speaks protocol {version}, this gpudash {PROTOCOL_VERSION}"
            )
        self._is_known = True


class RequestQueue:
    """Requests from any thread, which one thread runs."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_closed = False

    def put(self, request: Callable[[], None]) -> None:
        self._waiting.put(request)
        self.wake()

    def wake(self) -> None:
        if not self._is_closed:
            os.eventfd_write(self._wake, 1)

    def wait(self, filenos: Iterable[int], at_most_s: float) -> None:
        awaited = select.poll()
        for fd in (self._wake, *filenos):
            awaited.register(fd, select.POLLIN)
        awaited.poll(1000 * at_most_s)

    def obey(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()()

    def close(self) -> None:
        self._is_closed = True
        os.close(self._wake)
