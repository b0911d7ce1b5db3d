"""What a session reads a run from, and asks things of."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import msgspec

from gpudash.errors import UNDECODABLE, SourceError
from gpudash.protocol import PROTOCOL_VERSION, AnyCommand, Envelope, Started


class Ended(NamedTuple):
    """No more will come of a source."""

    why: str
    """As a sentence, for one that has said nothing of its end itself."""


class Source(ABC):
    """Where messages come from. No method waits, but `close` for a moment."""

    is_ours = True
    """What does not obey a Stop in time is closed, which ends it; the user's own never is."""
    joined = False
    """Whether the training had begun before it is watched."""

    @property
    def filenos(self) -> tuple[int, ...]:
        """What to watch for something to read; it is read now and then besides."""
        return ()

    @abstractmethod
    def read(self) -> list[Envelope]:
        """Return what has arrived, and send what could not leave before.

        Raises SourceError where it cannot be understood.
        """

    def send(self, command: AnyCommand, /) -> None:  # noqa: B027  # most obey nothing
        """Hand the command over."""

    def type(self, text: str, /) -> None:  # noqa: B027  # most have no keyboard
        """Type on the terminal of what runs."""

    def watch(self, started: Started, /, rank: int = 0) -> None:  # noqa: B027  # most know no device
        """Tell of this rank's training from now on, if it tells of one."""

    def forget(self) -> None:  # noqa: B027  # as `watch`
        """Take that all ranks that were to be watched have ended."""

    def ended(self) -> Ended | None:
        """Return how it ended; None while more may come."""
        return None

    @abstractmethod
    def close(self) -> None:
        """End it and tidy up after it; again: nothing."""


ENVELOPES = msgspec.json.Decoder(Envelope)
"""Made on import: msgspec crashes where one thread uses types that another one is looking up."""


class Decoder:
    """Turns a source's lines into envelopes; the first one has to be a Hello of this version."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_known = False

    def decode(self, line: bytes) -> Envelope:
        """Return one message. Raises SourceError or UNDECODABLE."""
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
