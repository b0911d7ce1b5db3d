"""A process that trains, and the connection to it."""

import math
import socket
import struct
import time
from collections.abc import Callable, Hashable
from typing import Protocol, TypeAlias

import msgspec

from gpudash.errors import SourceError
from gpudash.protocol import AnyCommand, Envelope, Hello, Progress, Started
from gpudash.run.keeper import began_ticks
from gpudash.run.lines import HungUp, Lost
from gpudash.run.source import Decoder

AHEAD_S = 0.5
"""No process is taken to train on for longer than this after its newest message."""
CREDENTIALS = struct.Struct("3i")
Key: TypeAlias = Hashable
"""Tells processes, and their sockets, apart."""


class NodeLost(HungUp):
    """Its node is, and how it fares is not known."""


class Connection(Protocol):
    """What is needed of one: `Lines`, or a relay's channel."""

    ended: bool
    """Whether nothing comes after what has been read."""

    def read(self) -> list[bytes]:
        """Return the lines that have arrived. Raises Lost."""

    def send(self, line: bytes) -> None:
        """Say a line, now or later. Raises Lost."""

    def close(self) -> None:
        """Hang up."""


class Member:
    """One process, and the connection to it."""

    def __init__(
        self,
        key: Key,
        pid: int,
        connection: Connection,
        node: str = "",
        taken: Callable[[Envelope], Envelope] = lambda envelope: envelope,
        *,
        is_seen: bool = True,
    ) -> None:
        """`node` is the other machine that it is on; `taken` returns its message as one of ours.

        One that is not seen from here is of another namespace: `pid` is its number there.
        """
        self.key = key
        self.pid = pid
        self.node = node
        self.is_seen = is_seen and not node
        self.rank: int | None = None
        """None until it has said something."""
        self.ended = False
        self.is_lost = False
        """As `NodeLost`."""
        self.parted_s = 0.0
        self._connection = connection
        self._taken = taken
        self._decoder = Decoder("it")
        self.job = ""
        """As it says in its `Hello`."""
        self.world_size = 1
        """How many processes train together with it, as it says."""
        self._steps = 0
        self._until_s = time.monotonic()
        self._step_s = 0.0  # of late; 0: none was seen

    @property
    def described(self) -> str:
        """Which one it is."""
        rank = "" if self.rank is None else f" (rank {self.rank})"
        return f"training process {self.pid}{rank}{self.node and f' on {self.node}'}"

    @property
    def has_ended(self) -> bool:
        """Whether its process has: taken for granted of one that is not seen and has hung up."""
        return not self.is_seen or began_ticks(self.pid) < 0

    def is_same_process(self, other: "Member") -> bool:
        """Whether both are of one process."""
        return (self.node, self.pid) == (other.node, other.pid)

    def read(self) -> list[Envelope]:
        """Return what has arrived. Raises SourceError or UNDECODABLE for what makes no sense."""
        try:
            lines = self._connection.read()
        except HungUp as error:
            self.ended, self.is_lost = True, isinstance(error, NodeLost)
            return []
        except Lost as error:
            raise SourceError(str(error)) from error
        self.ended = self.ended or self._connection.ended  # who follows may have come already
        envelopes = [self._taken(self._decoder.decode(line)) for line in lines]
        for envelope in envelopes:
            self._note(envelope)
        return envelopes

    def send(self, command: AnyCommand) -> None:
        """Hand the command over; a process that is busy does not hold us up."""
        try:
            self._connection.send(msgspec.json.encode(command))
        except Lost:
            self.ended = True

    def steps_in(self, seconds: float) -> int:
        """Return how many steps it trains in so long, at its newest pace."""
        return math.ceil(seconds / self._step_s) if self._step_s else 0

    def step_now(self) -> int:
        """Return which step it is at, as far as its newest message tells."""
        return self._steps + self.steps_in(min(time.monotonic() - self._until_s, AHEAD_S))

    def _note(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, Hello):
            self.job = body.job
        elif isinstance(body, Started):
            self.world_size = body.world_size
            self._steps, self._until_s, self._step_s = 0, time.monotonic(), 0.0
        elif isinstance(body, Progress):
            if body.steps:
                total_ms = sum(step.step_ms * step.count for step in body.steps)
                self._step_s = total_ms / 1e3 / sum(step.count for step in body.steps)
            self._steps, self._until_s = body.total_steps, time.monotonic()

    def close(self) -> None:
        """Let go of it."""
        self.ended = True
        self._connection.close()


def peer(connection: socket.socket) -> int:
    """Return the process at the other end, as the kernel knows it; 0: it is not seen from here."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(credentials)[0])
