"""A source that tells a session what a test has it tell."""

from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from gpudash.protocol.envelope import Envelope
from gpudash.run.source import Source


class Told(Source):
    """Sends each message at its moment; then it ends so, if at all."""

    def __init__(
        self,
        messages: Iterable[Envelope],
        clock: Callable[[], float] = lambda: inf,
        ended: str | None = None,
    ) -> None:
        self.left, self._clock, self._ended = deque(messages), clock, ended

    def read(self) -> list[Envelope]:
        found = []
        while self.left and self.left[0].sent_s <= self._clock():
            found.append(self.left.popleft())
        return found

    def ended(self) -> str | None:
        return None if self.left else self._ended

    def close(self) -> None: ...
