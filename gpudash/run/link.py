"""What a relay and the gpudash that listens say, once they trust each other.

Each line begins with a process id: what follows is said by that training process, or to it. An
empty line hangs up on it. Lines of process 0 are between the two themselves.
"""

from typing import TypeAlias

import msgspec

from gpudash.protocol import GpuReading, HostReading, Record, Stacks
from gpudash.run.lines import Lost

OURSELVES = 0
PING_S = 1.0
"""How often the listening end asks for the other's clock."""
SILENT_S = 15.0
"""A connection is lost when nothing has come for so long."""


class Ping(Record, frozen=True, kw_only=True):
    """What does your clock say? From the listening end."""

    asked_s: float


class Pong(Record, frozen=True, kw_only=True):
    """The answer."""

    asked_s: float
    clock_s: float


class Parting(Record, frozen=True, kw_only=True):
    """The command of that node has ended; how, as a sentence."""

    text: str


FromRelay: TypeAlias = Pong | Parting | GpuReading | HostReading
ToRelay: TypeAlias = Ping | Stacks


def line_of(process: int, said: bytes) -> bytes:
    """Return the line that says this of a process, or to it."""
    return b"%d %b" % (process, said)


def own_line(said: ToRelay | FromRelay) -> bytes:
    """Return a line between the two themselves."""
    return line_of(OURSELVES, msgspec.json.encode(said))


def parsed(said: bytes) -> tuple[int, bytes]:
    """Return which process a line is of, and what it says. Raises Lost."""
    process, _, rest = said.partition(b" ")
    if not process.isdigit() or len(process) > 10:
        raise Lost("a line of it makes no sense")
    return int(process), rest
