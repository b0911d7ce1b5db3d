"""Define the lines between a relay and the listening gpudash, after the handshake.

Each line begins with a process id: the rest is from that training process, or to it. An empty rest
closes the connection to it. Lines of process 0 are between the two gpudash themselves.
"""

from typing import TypeAlias

import msgspec

from gpudash.protocol import GpuReading, HostReading, Record, Stacks
from gpudash.run.lines import Lost

OURSELVES = 0
PING_S = 1.0
"""How often the listening end asks for the other's clock."""
SILENT_S = 15.0
"""A connection is lost after this many seconds without a line."""


class Ping(Record, frozen=True, kw_only=True):
    """The listening end's request for the relay's clock."""

    asked_s: float


class Pong(Record, frozen=True, kw_only=True):
    """The relay's answer to a Ping."""

    asked_s: float
    clock_s: float


class Parting(Record, frozen=True, kw_only=True):
    """The end of the node's command, as a sentence."""

    text: str


FromRelay: TypeAlias = Pong | Parting | GpuReading | HostReading
ToRelay: TypeAlias = Ping | Stacks


def line_of(process: int, said: bytes) -> bytes:
    """Return a line from a training process, or to it."""
    return b"%d %b" % (process, said)


def own_line(said: ToRelay | FromRelay) -> bytes:
    """Return a line between the two gpudash themselves."""
    return line_of(OURSELVES, msgspec.json.encode(said))


def parsed(said: bytes) -> tuple[int, bytes]:
    """Return a line's process id and the rest. Raises Lost."""
    process, _, rest = said.partition(b" ")
    if not process.isdigit() or len(process) > 10:
        raise Lost("a line of it makes no sense")
    return int(process), rest
