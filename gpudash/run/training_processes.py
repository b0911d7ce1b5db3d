"""The processes that train: found by their sockets, or told of by other nodes, read, and told."""

import itertools
import math
import os
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from gpudash.errors import SourceError
from gpudash.protocol import (
    AnyCommand,
    Blocks,
    BlocksEnded,
    Change,
    Envelope,
    Event,
    Hello,
    Memory,
    Notice,
    Pause,
    Profile,
    Progress,
    Refused,
    Resume,
    Resumed,
    Started,
)
from gpudash.rendezvous import Rendezvous
from gpudash.run.arrivals import Arrivals
from gpudash.run.keeper import began_ticks
from gpudash.run.nodes import Channel, Nodes
from gpudash.run.source import Decoder

READ_BYTES = 1 << 16
TURN_BYTES = 1 << 20
"""One turn reads no more of one process."""
PATIENCE_S = 1.0
"""A process that has ended is worth a word once its command has lived on for so long."""
GATHER_S = 3.0
"""Ranks that train together are connected within so long."""
AHEAD_S, AHEAD_STEPS = 0.5, 3
"""How far ahead the step is at which all ranks are to change: the command has to reach each of
them before, and none looks at its socket within a step."""
CREDENTIALS = struct.Struct("3i")
Key: TypeAlias = Hashable
"""Tells processes, and their sockets, apart."""


class TrainingProcesses:
    """All of one run; each has a rank of its own."""

    def __init__(self, place: Rendezvous, nodes: Nodes | None = None) -> None:
        self._arrivals = Arrivals(place)
        self._nodes = nodes
        self._members: list[_Member] = []
        self._refused: set[Key] = set()  # processes and sockets that make no sense
        self.parted_s: float | None = None
        """When the last one hung up; None while one trains."""
        self._unsent: deque[tuple[AnyCommand, float]] = deque()  # and until when ranks may come
        self._asked: dict[int, _Asked] = {}  # by its id
        self._at_step = 0  # of the newest command for all ranks
        self._gone: list[_Member] = []  # of some it is not known whether they have ended
        self._sentences: list[str] = []

    @property
    def filenos(self) -> tuple[int, ...]:
        """What to watch for something to read."""
        return () if self._nodes is None else (self._nodes.fileno(),)

    def came_to(self, what: str) -> bool:
        """Tell whether a process of the command has left this mark."""
        return bool(self._arrivals.marks.get(what))

    def read(self) -> list[Envelope]:
        """Return what has arrived: ranks are those here, sequence numbers still the process's."""
        self._look()
        found = [] if self._nodes is None else self._nodes.readings()
        for member in list(self._members):
            try:
                for envelope in member.read():
                    rank = self._rank_of(member, envelope)
                    self._note_answer(envelope, rank)
                    if not isinstance(envelope.body, Hello):
                        found.append(msgspec.structs.replace(envelope, rank=rank))
            except (SourceError, msgspec.MsgspecError) as error:
                self._sentences.append(f"{member.described}: {error}")
                self._refused.add(member.key)
                member.close()
            if member.ended:
                self._part_with(member)
        return [*found, *self._send_on(), *self._left_over()]

    def notices(self) -> list[Notice]:
        """Return what the user should know: which processes have ended while the command lives."""
        now_s = time.monotonic()
        for gone in [one for one in self._gone if one.has_ended]:
            if now_s - gone.parted_s > PATIENCE_S:
                self._gone.remove(gone)
                others = "; the others go on" if self._members else ""
                self._sentences.append(f"{gone.described} has ended{others}")
        notices = [Notice(text=sentence) for sentence in self._sentences]
        self._sentences.clear()
        return notices

    def send(self, command: AnyCommand) -> list[Envelope]:
        """Hand it to rank 0, and what changes levers to all; return the answer if there is none.

        One answer is told: rank 0's, or where it is lost, another's.
        """
        self._unsent.append((command, time.monotonic() + GATHER_S))
        return self._send_on()

    def _send_on(self) -> list[Envelope]:
        """Hand on what has been asked, in its order, as soon as all who are to hear it are here."""
        unheard = []
        while self._unsent:
            command, until_s = self._unsent[0]
            speaker = next((member for member in self._members if member.rank == 0), None)
            ranks = [speaker] if speaker is not None else []
            needed = 1
            if speaker is not None and isinstance(command, Change | Blocks):
                needed = speaker.world_size
                if needed > 1:
                    ranks = [one for one in self._members if one.world_size == needed]
            if len(ranks) >= needed:
                self._hand_over(command, ranks)
            elif speaker is None:
                unheard.append(_unheard(command, "nothing is training"))
            elif time.monotonic() > until_s:
                why = f"{len(ranks)} of {needed} ranks are connected"
                unheard.append(_unheard(command, f"{why}, and a lever moves on all at once"))
            else:
                break
            self._unsent.popleft()
        return unheard

    def _hand_over(self, command: AnyCommand, ranks: "list[_Member]") -> None:
        if len(ranks) > 1 and isinstance(command, Change | Blocks):
            command = msgspec.structs.replace(command, at_step=self._step_for_all(ranks))
        self._asked[command.id] = _Asked(command, {member.key for member in ranks})
        for member in ranks:
            member.send(command)

    def _step_for_all(self, members: "list[_Member]") -> int:
        """Return the step after which all are to change, none of them being so far."""
        ahead = max(one.steps_in(AHEAD_S) for one in members) + AHEAD_STEPS
        newest = max(member.step_now() for member in members)
        self._at_step = max(self._at_step, newest + ahead)
        return self._at_step

    def _note_answer(self, envelope: Envelope, rank: int) -> None:
        for number in getattr(envelope.body, "answers", ()):
            asked = self._asked.get(number)
            if asked is not None and rank == 0:
                del self._asked[number]
            elif asked is not None:
                asked.answer = asked.answer or envelope

    def _left_over(self) -> list[Envelope]:
        """Return the answers to what rank 0 will not answer any more."""
        found = []
        here = {member.key: member.rank for member in self._members}
        for number, asked in list(self._asked.items()):
            left = asked.told & here.keys()
            if 0 in {here[key] for key in left} or (left and asked.answer is None):
                continue
            del self._asked[number]
            answer = asked.answer or _unheard(asked.command, "the training has ended, or was lost")
            found.append(msgspec.structs.replace(answer, rank=0))
        return found

    def kill(self) -> None:
        """Kill those of this machine that are connected."""
        for member in self._members:
            if not member.node:
                with suppress(OSError):
                    os.kill(member.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of them."""
        for member in self._members:
            member.close()
        self._members.clear()
        if self._nodes is not None:
            self._nodes.close()
            self._nodes = None

    def _look(self) -> None:
        """Take in those that have come."""
        known = self._refused | {member.key for member in self._members}
        for key, connection in self._arrivals.look(known):
            self._add(_Member(key, _peer(connection) or key[0], connection))
        if self._nodes is not None:
            for channel in self._nodes.turn():
                self._add(_Member(channel, channel.process, channel, channel.node, channel.taken))
            self._sentences += self._nodes.sentences
            self._nodes.sentences.clear()

    def _add(self, member: "_Member") -> None:
        self._members.append(member)
        self.parted_s = None
        self._gone = [one for one in self._gone if not one.is_same_process(member)]

    def _rank_of(self, member: "_Member", envelope: Envelope) -> int:
        """Return the rank that the process says, or the next that no other has.

        Raises SourceError for one of another node whose rank another has.
        """
        if member.rank is None:
            nodes = {one.rank: one.node for one in self._members}
            asked = envelope.rank
            if member.node and asked in nodes:
                raise SourceError(f"it says it is rank {asked}, which another process is")
            member.rank = next(rank for rank in itertools.count(asked) if rank not in nodes)
            if nodes.get(asked):
                shown = f"the one here is shown as rank {member.rank}"
                self._sentences.append(f"rank {asked} is on {nodes[asked]} already; {shown}")
        return member.rank

    def _part_with(self, member: "_Member") -> None:
        """Let go of it. If it lives it is asked again: it may have had another dashboard."""
        self._members.remove(member)
        member.close()
        if not self._members:
            self.parted_s = time.monotonic()
        if member.rank is not None and member.key not in self._refused and not member.is_lost:
            member.parted_s = time.monotonic()
            self._gone.append(member)


@dataclass(slots=True)
class _Asked:
    """A command that has no answer so far."""

    command: AnyCommand
    told: set[Key]
    """Whom, by their keys."""
    answer: Envelope | None = None
    """Another rank's, in case that rank 0 gives none."""


class _Member:
    """One process, and the connection to it."""

    def __init__(
        self,
        key: Key,
        pid: int,
        connection: "socket.socket | Channel",
        node: str = "",
        taken: Callable[[Envelope], Envelope] = lambda envelope: envelope,
    ) -> None:
        """`node` is the other machine that it is on; `taken` returns its message as one of ours."""
        self.key = key
        self.pid = pid
        self.node = node
        self.rank: int | None = None
        """None until it has said something."""
        self.ended = False
        self.is_lost = False
        """Its node is, and how it fares is not known."""
        self.parted_s = 0.0
        self._connection = connection
        self._taken = taken
        self._decoder = Decoder("it")
        self._partial = b""
        self._unsent = bytearray()
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
        """Whether its process has: taken for granted of another node's that has hung up."""
        return bool(self.node) or began_ticks(self.pid) < 0

    def is_same_process(self, other: "_Member") -> bool:
        return (self.node, self.pid) == (other.node, other.pid)

    def read(self) -> list[Envelope]:
        """Return what has arrived. Raises SourceError or MsgspecError for what makes no sense."""
        self._flush()
        received = bytearray(self._partial)
        while not self.ended and len(received) < TURN_BYTES:
            try:
                chunk = self._connection.recv(READ_BYTES)
            except BlockingIOError:
                break
            except ConnectionAbortedError:
                chunk, self.is_lost = b"", True
            except OSError:
                chunk = b""
            self.ended = not chunk
            received += chunk
        *lines, self._partial = bytes(received).split(b"\n")
        envelopes = [self._taken(self._decoder.decode(line)) for line in lines]
        for envelope in envelopes:
            self._note(envelope)
        return envelopes

    def send(self, command: AnyCommand) -> None:
        """Hand the command over; a process that is busy does not hold us up."""
        self._unsent += msgspec.json.encode(command) + b"\n"
        self._flush()

    def steps_in(self, seconds: float) -> int:
        """Return how many steps it trains in so long, at its newest pace."""
        return math.ceil(seconds / self._step_s) if self._step_s else 0

    def step_now(self) -> int:
        """Return which step it is at, as far as its newest message tells."""
        return self._steps + self.steps_in(min(time.monotonic() - self._until_s, AHEAD_S))

    def _note(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, Started):
            self.world_size = body.world_size
            self._steps, self._until_s, self._step_s = 0, time.monotonic(), 0.0
        elif isinstance(body, Progress):
            if body.steps:
                total_ms = sum(step.step_ms * step.count for step in body.steps)
                self._step_s = total_ms / 1e3 / sum(step.count for step in body.steps)
            self._steps, self._until_s = body.total_steps, time.monotonic()

    def close(self) -> None:
        self.ended = True
        self._connection.close()

    def _flush(self) -> None:
        if self._unsent and not self.ended:
            with suppress(OSError):  # full, or gone
                del self._unsent[: self._connection.send(self._unsent)]


def _peer(connection: socket.socket) -> int:
    """Return the process at the other end, as the kernel knows it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return int(CREDENTIALS.unpack(credentials)[0])


def _unheard(command: AnyCommand, why: str) -> Envelope:
    """Return an answer to a command that nobody answers."""
    now_s, mine = time.monotonic(), (command.id,)
    body: Event
    match command:
        case Blocks(run=run):
            body = BlocksEnded(at_s=now_s, answers=mine, run=run, why=why)
        case Profile():
            body = Refused(answers=mine, kind="no_profile", changes={}, reason=why)
        case Memory():
            body = Refused(answers=mine, kind="no_memory_owners", changes={}, reason=why)
        case Pause() | Resume():
            body = Resumed(at_s=now_s, answers=mine)
        case _:
            changes = command.settings if isinstance(command, Change) else {}
            body = Refused(answers=mine, kind="bad_setting", changes=changes, reason=why)
    return Envelope(source="training", seq=0, sent_s=now_s, body=body)
