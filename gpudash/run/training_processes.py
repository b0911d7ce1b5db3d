"""The processes of a command that train: found by their sockets, read, and told."""

import itertools
import os
import signal
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

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
    Notice,
    Parted,
    Pause,
    Profile,
    Refused,
    Resume,
    Resumed,
    Stack,
    Stacks,
)
from gpudash.rendezvous import Rendezvous
from gpudash.run import stacks
from gpudash.run.keeper import began_ticks
from gpudash.run.source import Decoder

READ_BYTES = 1 << 16
TURN_BYTES = 1 << 20
"""One turn reads no more of one process."""
LOOK_S = 1.0
"""How often the directory is looked at where it has not changed: one may not listen so far."""
SETTLED_NS = 50_000_000
"""Of a directory that changed so lately, another change may bear the same time."""
MOST_RANKS = 1 << 16
"""No job has more: a process that says a higher rank, or one below 0, makes no sense."""
STACK_PATIENCE_S = 2.0
"""So long a process may take to write its stack."""
PATIENCE_S = 1.0
"""A process that has ended is worth a word once its command has lived on for so long."""
CREDENTIALS = struct.Struct("3i")


class TrainingProcesses:
    """All of one run; each has a rank of its own."""

    def __init__(self, place: Rendezvous) -> None:
        self._place = place
        self._marks: dict[str, dict[int, int]] = {}
        self._changed_ns = -1
        self._look_s = 0.0
        self._members: list[_Member] = []
        self._refused: set[tuple[int, int]] = set()  # processes and sockets that make no sense
        self.parted_s: float | None = None
        """When the last one hung up; None while one trains."""
        self._gone: list[_Member] = []  # of some it is not known whether they have ended
        self._sentences: list[str] = []
        self._pids: dict[int, int] = {}  # of each rank, its newest process
        self._asked: _Asked | None = None

    def came_to(self, what: str) -> bool:
        """Tell whether a process of the command has left this mark."""
        return bool(self._marks.get(what))

    def read(self) -> list[Envelope]:
        """Return what has arrived: ranks are those here, sequence numbers still the process's."""
        self._look()
        found = []
        for member in list(self._members):
            try:
                for envelope in member.read():
                    rank = self._rank_of(member, envelope)
                    if not isinstance(envelope.body, Hello):
                        found.append(msgspec.structs.replace(envelope, rank=rank))
            except (SourceError, msgspec.MsgspecError) as error:
                self._sentences.append(f"training process {member.pid} is left out: {error}")
                self._refused.add(member.key)
                member.close()
            if member.ended:
                self._part_with(member)
                found += member.unheard("the training has ended, or was lost")
        return [*found, *self._departed(), *self._stacks()]

    def notices(self) -> list[Notice]:
        """Return what the user should know: which processes have ended while the command lives."""
        notices = [Notice(text=sentence) for sentence in self._sentences]
        self._sentences.clear()
        return notices

    def send(self, command: AnyCommand) -> list[Envelope]:
        """Hand it to rank 0; return the answer where there is none."""
        for member in self._members:
            if member.rank == 0:
                member.send(command)
                return []
        return _unheard([command], "nothing is training")

    def ask_for_stacks(self, command: Stacks) -> None:
        """Ask each process where it is: `read` returns the answers, all at once."""
        asked = {one: stacks.ask(self._place, one.pid) for one in self._members}
        self._asked = _Asked(command.id, time.monotonic(), asked, {})

    def kill(self) -> None:
        """Kill those that are connected."""
        for member in self._members:
            with suppress(OSError):
                os.kill(member.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of them."""
        for member in self._members:
            member.close()
        self._members.clear()

    def _look(self) -> None:
        """Connect to those that have come."""
        now_s = time.monotonic()
        try:
            changed_ns = self._place.path.stat().st_mtime_ns
            if changed_ns == self._changed_ns and now_s < self._look_s:
                return
            self._marks = self._place.marks()
        except OSError:  # the run is over
            return
        is_settled = time.time_ns() - changed_ns > SETTLED_NS
        self._changed_ns, self._look_s = changed_ns if is_settled else -1, now_s + LOOK_S
        known = self._refused | {member.key for member in self._members}
        for key in set(self._marks.get("sock", {}).items()) - known:
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            try:
                connection.connect(str(self._place.socket(key[0])))
            except OSError:  # gone, or not listening so far
                connection.close()
                continue
            self._members.append(_Member(key, connection))
            self.parted_s = None
            self._gone = [one for one in self._gone if one.pid != key[0]]  # it is reached again

    def _rank_of(self, member: "_Member", envelope: Envelope) -> int:
        """Return the rank that the process says, or the next that no other has."""
        if member.rank is None:
            if not 0 <= envelope.rank < MOST_RANKS:
                raise SourceError(f"it says that its rank is {envelope.rank}")
            taken = {one.rank for one in self._members}
            free = (rank for rank in itertools.count(envelope.rank) if rank not in taken)
            member.rank = next(free)
            before = self._pids.get(member.rank, member.pid)
            self._pids[member.rank] = member.pid
            if before != member.pid:
                which = f"rank {member.rank} began again: training process {member.pid}"
                self._sentences.append(f"{which} follows {before}")
        return member.rank

    def _part_with(self, member: "_Member") -> None:
        """Let go of it. If it lives it is asked again: it may have had another dashboard."""
        self._members.remove(member)
        member.close()
        if not self._members:
            self.parted_s = time.monotonic()
        if member.rank is not None and member.key not in self._refused:
            member.parted_s = time.monotonic()
            self._gone.append(member)

    def _departed(self) -> list[Envelope]:
        """Return which processes have ended while their command lives on."""
        found, now_s = [], time.monotonic()
        for gone in [one for one in self._gone if began_ticks(one.pid) < 0]:
            if now_s - gone.parted_s <= PATIENCE_S:
                continue
            self._gone.remove(gone)
            which = f"training process {gone.pid} (rank {gone.rank}) has ended"
            self._sentences.append(which + ("; the others go on" if self._members else ""))
            if gone.rank not in {one.rank for one in self._members}:  # else another has its place
                body = Parted(at_s=gone.parted_s, pid=gone.pid)
                found.append(_envelope(body, gone.rank or 0))
        return found

    def _stacks(self) -> list[Envelope]:
        """Return the answers of those that were asked, once none is waited for any more."""
        if self._asked is None:
            return []
        number, asked_s, asked, written = self._asked
        texts = {one: stacks.answered(file) if file else "" for one, file in asked.items()}
        is_whole = texts == written and all(texts[one] for one, file in asked.items() if file)
        if not is_whole and time.monotonic() - asked_s < STACK_PATIENCE_S:
            self._asked = self._asked._replace(written=texts)
            return []
        self._asked = None
        return [
            _envelope(
                Stack(
                    at_s=asked_s,
                    answers=(number,),
                    text=text,
                    why="" if text else stacks.why_not(one.pid),
                ),
                one.rank,
            )
            for one, text in texts.items()
            if one.rank is not None
        ]


class _Asked(NamedTuple):
    """Processes that were asked for their stacks."""

    number: int
    """Of the command."""
    asked_s: float
    asked: "dict[_Member, stacks.Asked | None]"
    """None for one that cannot be asked."""
    written: "dict[_Member, str]"
    """When it was looked at last: a stack that grows no more is whole."""


class _Member:
    """One process, and the connection to it."""

    def __init__(self, key: tuple[int, int], connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        self.key = key
        self.pid: int = CREDENTIALS.unpack(credentials)[0] or key[0]
        self.rank: int | None = None
        """None until it has said something."""
        self.ended = False
        self.parted_s = 0.0
        self._connection = connection
        self._decoder = Decoder("it")
        self._partial = b""
        self._unsent = bytearray()
        self._unanswered: dict[int, AnyCommand] = {}

    def read(self) -> list[Envelope]:
        """Return what has arrived. Raises SourceError or MsgspecError for what makes no sense."""
        self._flush()
        received = bytearray(self._partial)
        while not self.ended and len(received) < TURN_BYTES:
            try:
                chunk = self._connection.recv(READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self.ended = not chunk
            received += chunk
        *lines, self._partial = bytes(received).split(b"\n")
        envelopes = [self._decoder.decode(line) for line in lines]
        for envelope in envelopes:
            for number in getattr(envelope.body, "answers", ()):
                self._unanswered.pop(number, None)
        return envelopes

    def send(self, command: AnyCommand) -> None:
        """Hand the command over; a process that is busy does not hold us up."""
        self._unanswered[command.id] = command
        self._unsent += msgspec.json.encode(command) + b"\n"
        self._flush()

    def unheard(self, why: str) -> list[Envelope]:
        """Return the answers that it did not give."""
        return _unheard(self._unanswered.values(), why)

    def close(self) -> None:
        self.ended = True
        self._connection.close()

    def _flush(self) -> None:
        if self._unsent and not self.ended:
            with suppress(OSError):  # full, or gone
                del self._unsent[: self._connection.send(self._unsent)]


def _unheard(commands: Iterable[AnyCommand], why: str) -> list[Envelope]:
    """Return an answer to each: a command is answered once, by whomever."""
    now_s = time.monotonic()
    answers: list[Event] = []
    for command in commands:
        mine = (command.id,)
        match command:
            case Change(settings=settings):
                refused = Refused(answers=mine, kind="bad_setting", changes=settings, reason=why)
                answers.append(refused)
            case Blocks(run=run):
                answers.append(BlocksEnded(at_s=now_s, answers=mine, run=run, why=why))
            case Profile():
                refused = Refused(answers=mine, kind="no_profile", changes={}, reason=why)
                answers.append(refused)
            case Pause() | Resume():
                answers.append(Resumed(at_s=now_s, answers=mine))
    return [_envelope(body, 0) for body in answers]


def _envelope(body: Event, rank: int) -> Envelope:
    """Return what is told for a process; who relays it gives it a number."""
    return Envelope(source="training", rank=rank, seq=0, sent_s=time.monotonic(), body=body)
