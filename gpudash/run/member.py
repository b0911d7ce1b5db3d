"""Find the training processes of a rendezvous as they begin to listen, and connect to each."""

import math
import socket
import struct
import time
from collections.abc import Callable, Collection, Hashable
from typing import Protocol, TypeAlias

import msgspec

from gpudash.errors import SourceError
from gpudash.protocol.commands import CommandOrFigures, Figures
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.training import Hello, Progress, State, TrainingProcess
from gpudash.rendezvous import Rendezvous
from gpudash.run.keeper import began_ticks
from gpudash.run.lines import HungUp, Lost
from gpudash.run.source import Decoder

AHEAD_S = 0.5
"""Seconds after its newest message for which a process is assumed to go on training."""
MOST_UNREAD = 8
"""Rows of figures for a process that has said nothing since."""
LOOK_S = 1.0
"""How often an unchanged directory is read: a process may not have listened yet."""
SETTLED_NS = 50_000_000
"""A directory changed more recently than this may change again with the same time stamp."""
CREDENTIALS = struct.Struct("3i")
Key: TypeAlias = Hashable
"""Identifies a process and its socket."""


class NodeLost(HungUp):
    """The process's node is lost, and the process's state unknown."""


class Connection(Protocol):
    """A connection to a process: `Lines`, or a relay's channel."""

    ended: bool
    """Whether the other end has closed the connection."""

    @property
    def filenos(self) -> tuple[int, ...]:
        """Descriptors to poll for reading."""

    def read(self) -> list[bytes]:
        """Return the lines that have arrived. Raises Lost."""

    def send(self, line: bytes) -> None:
        """Send a line, now or later. Raises Lost."""

    def close(self) -> None:
        """Close the connection."""


class Member:
    """One process, and the connection to it."""

    def __init__(
        self,
        key: Key,
        pid: int,
        connection: Connection,
        node: str = "",
        converted: Callable[[Envelope], Envelope] = lambda envelope: envelope,
        *,
        is_seen: bool = True,
    ) -> None:
        """If the process is not seen, `pid` is its number in another PID namespace."""
        self.key = key
        self.pid = pid
        self.node = node
        self.is_seen = is_seen and not node
        self.rank: int | None = None
        """None until its first message."""
        self.ended = False
        self.is_lost = False
        """Whether its node is lost."""
        self.parted_s = 0.0
        self._connection = connection
        self._converted = converted
        self._decoder = Decoder("it")
        self.job = ""
        """The job named in its `Hello`."""
        self.world_size = 1
        """Number of processes in its job, as it reports."""
        self._process: TrainingProcess | None = None
        self._steps = 0
        self._until_s = time.monotonic()
        self._step_s = 0.0  # recent step time; 0 before any step
        self._unread_figures = 0  # at most; it has said nothing since these were sent

    @property
    def described(self) -> str:
        rank = "" if self.rank is None else f" (rank {self.rank})"
        return f"training process {self.pid}{rank}{self.node and f' on {self.node}'}"

    @property
    def filenos(self) -> tuple[int, ...]:
        return () if self.ended else self._connection.filenos

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended; assumed of one that is not seen."""
        return not self.is_seen or began_ticks(self.pid) < 0

    def is_same_process(self, other: "Member") -> bool:
        return (self.node, self.pid) == (other.node, other.pid)

    def read(self) -> list[Envelope]:
        """Return the messages that have arrived. Raises SourceError or UNDECODABLE."""
        try:
            lines = self._connection.read()
        except HungUp as error:
            self.ended, self.is_lost = True, isinstance(error, NodeLost)
            return []
        except Lost as error:
            raise SourceError(str(error)) from error
        self.ended = self.ended or self._connection.ended  # its successor may have come already
        self._unread_figures = 0 if lines else self._unread_figures
        envelopes = [self._converted(self._decoder.decode(line)) for line in lines]
        for envelope in envelopes:
            self._note(envelope)
        return envelopes

    def send(self, command: CommandOrFigures) -> None:
        """Never wait for a busy process."""
        try:
            self._connection.send(msgspec.json.encode(command))
        except Lost:
            self.ended = True

    def track(self, figures: Figures) -> None:
        """Send figures, or leave them out: a silent process may read nothing for a long time."""
        if self._unread_figures < MOST_UNREAD:
            self._unread_figures += 1
            self.send(figures)

    def steps_in(self, seconds: float) -> int:
        return math.ceil(seconds / self._step_s) if self._step_s else 0

    def step_now(self) -> int:
        return self._steps + self.steps_in(min(time.monotonic() - self._until_s, AHEAD_S))

    def _note(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, Hello):
            self.job = body.job
        elif isinstance(body, State) and body.process not in (None, self._process):
            self._process, self.world_size = body.process, body.process.world_size
            self._steps, self._until_s, self._step_s = 0, time.monotonic(), 0.0
        elif isinstance(body, Progress):
            if body.steps:
                total_ms = sum(step.step_ms * step.count for step in body.steps)
                self._step_s = total_ms / 1e3 / sum(step.count for step in body.steps)
            self._steps, self._until_s = body.total_steps, time.monotonic()

    def close(self) -> None:
        self.ended = True
        self._connection.close()


class Arrivals:
    """Connects to each training process once."""

    def __init__(self, place: Rendezvous) -> None:
        self._place = place
        self.marks: dict[str, dict[int, int]] = {}
        """Marks that processes have left in the rendezvous, by their kind."""
        self._changed_ns = -1
        self._look_s = 0.0

    def look(self, known: Collection[object]) -> list[tuple[tuple[int, int], socket.socket]]:
        """Return new processes: process id and socket's number, and a connection."""
        now_s = time.monotonic()
        try:
            changed_ns = self._place.path.stat().st_mtime_ns
            if changed_ns == self._changed_ns and now_s < self._look_s:
                return []
            self.marks = self._place.marks()
        except OSError:  # the run is over
            return []
        is_settled = time.time_ns() - changed_ns > SETTLED_NS
        self._changed_ns, self._look_s = changed_ns if is_settled else -1, now_s + LOOK_S
        found = []
        for key in self.marks.get("sock", {}).items():
            if key in known:
                continue
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            try:
                connection.connect(str(self._place.socket(key[0])))
            except OSError:  # gone, or not listening yet
                connection.close()
                continue
            found.append((key, connection))
        return found


def peer(connection: socket.socket) -> int:
    """Return the process id of the other end from the kernel; 0 if it is not seen from here."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(credentials)[0])
