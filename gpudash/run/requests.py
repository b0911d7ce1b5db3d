"""Pass requests to a thread that also waits for messages."""

import os
import select
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue


class RequestQueue:
    """Requests from any thread, which one thread runs."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_closed = False

    def put(self, request: Callable[[], None]) -> None:
        """Have the request run soon."""
        self._waiting.put(request)
        self.wake()

    def wake(self) -> None:
        """Make `wait` return."""
        if not self._is_closed:
            os.eventfd_write(self._wake, 1)

    def wait(self, filenos: Iterable[int], at_most_s: float) -> None:
        """Wait for a request, for something to read, or for `at_most_s` seconds."""
        awaited = select.poll()
        for fd in (self._wake, *filenos):
            awaited.register(fd, select.POLLIN)
        awaited.poll(1000 * at_most_s)

    def obey(self) -> None:
        """Run the waiting requests."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()()

    def close(self) -> None:
        """Close the descriptor that `wait` uses."""
        self._is_closed = True
        os.close(self._wake)
