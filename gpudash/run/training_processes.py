"""The processes that train: found by their sockets, or told of by other nodes, read, and told."""

import itertools
import os
import signal
import time
from contextlib import suppress
from functools import partial

import msgspec

from gpudash.errors import UNDECODABLE, SourceError
from gpudash.protocol import (
    AnyCommand,
    Envelope,
    Hello,
    Notice,
    Parted,
    Stack,
    Stacks,
    Started,
    TooLate,
)
from gpudash.rendezvous import Rendezvous
from gpudash.run import stacks
from gpudash.run.arrivals import Arrivals
from gpudash.run.job_commands import JobCommands
from gpudash.run.lines import Lines
from gpudash.run.member import Key, Member, peer
from gpudash.run.nodes import Nodes

MOST_RANKS = 1 << 16
"""No job has more: a process that says a higher rank, or one below 0, makes no sense."""
PATIENCE_S = 1.0
"""A process that has ended is worth a word once its command has lived on for so long."""


class TrainingProcesses:
    """All of one run; each has a rank of its own."""

    def __init__(
        self, place: Rendezvous, nodes: Nodes | None = None, *, rank_0_leads: bool = False
    ) -> None:
        self._place = place
        self._arrivals = Arrivals(place)
        self._nodes = nodes
        self._members: list[Member] = []
        self._ranks: dict[int, Member] = {}  # those that have said something
        self._refused: set[Key] = set()  # processes and sockets: of no sense, or of another job
        self._left_out: set[str] = set()  # the other jobs, each of which is told once
        self.parted_s: float | None = None
        """When the last one hung up; None while one trains."""
        self._commands = JobCommands(rank_0_leads=rank_0_leads)
        self._gone: list[Member] = []  # of some it is not known whether they have ended
        self._sentences: list[str] = []
        self._pids: dict[int, int] = {}  # of each rank, its newest process
        self._question: stacks.Question | None = None

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
            if member not in self._members:  # those that began anew have replaced it
                continue
            try:
                envelopes = member.read()
                for envelope in envelopes if self._is_watched(member) else ():
                    if isinstance(envelope.body, Stack):
                        self._take_stack(member, envelope.body)
                        continue
                    rank = self._rank_of(member, envelope)
                    self._commands.note(envelope, rank)
                    if not isinstance(envelope.body, Hello | TooLate):
                        found.append(msgspec.structs.replace(envelope, rank=rank))
            except (SourceError, *UNDECODABLE) as error:
                self._sentences.append(f"{member.described} is left out: {error}")
                self._refuse(member)
            if member.ended:
                self._part_with(member)
        answers = [*self._commands.turn(self._members), *self._departed(), *self._stacks()]
        return [*found, *answers]

    def notices(self) -> list[Notice]:
        """Return what the user should know: which processes have ended while the command lives."""
        notices = [Notice(text=sentence) for sentence in self._sentences]
        self._sentences.clear()
        return notices

    def send(self, command: AnyCommand) -> list[Envelope]:
        """Hand it to rank 0, and what changes levers to all; return the answer if there is none."""
        self._commands.take(command)
        return self._commands.turn(self._members)

    def ask_for_stacks(self, command: Stacks) -> None:
        """Ask each process where it is: `read` returns the answers, all at once."""
        nodes = set() if self._nodes is None else self._nodes.ask(command)
        self._question = stacks.Question(command, self._place, self._members, nodes)

    def kill(self) -> None:
        """Kill those that are connected and seen from here."""
        for member in self._members:
            if member.is_seen:
                with suppress(OSError):
                    os.kill(member.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of them."""
        for member in self._members:
            member.close()
        self._members.clear()
        self._ranks.clear()
        if self._nodes is not None:
            self._nodes.close()
            self._nodes = None

    def _look(self) -> None:
        """Take in those that have come."""
        known = self._refused | {member.key for member in self._members}
        for key, connection in self._arrivals.look(known):
            pid = peer(connection)
            number, is_seen = pid or key[0], pid > 0
            counted_here = partial(_counted_here, number)
            self._add(Member(key, number, Lines(connection), taken=counted_here, is_seen=is_seen))
        if self._nodes is not None:
            for channel in self._nodes.turn():
                self._add(Member(channel, channel.process, channel, channel.node, channel.taken))
            self._sentences += self._nodes.sentences
            self._nodes.sentences.clear()

    def _add(self, member: Member) -> None:
        self._members.append(member)
        self.parted_s = None
        self._gone = [one for one in self._gone if not one.is_same_process(member)]

    def _is_watched(self, member: Member) -> bool:
        """Tell whether it is: of two jobs at once the first one, but for one that began anew."""
        if member.rank is not None or not member.job:
            return True
        others = [one for one in self._ranks.values() if one.job not in ("", member.job)]
        if others and not _began_anew(member, others):
            self._leave_out(member)
            return False
        for other in others:
            self._part_with(other)
        return True

    def _leave_out(self, member: Member) -> None:
        if member.job not in self._left_out:
            self._left_out.add(member.job)
            which = f"another job trains beside this one and is left out: {member.described}"
            self._sentences.append(f"{which} and its other ranks train on, unwatched")
        self._refuse(member)

    def _refuse(self, member: Member) -> None:
        self._refused.add(member.key)
        member.close()

    def _rank_of(self, member: Member, envelope: Envelope) -> int:
        """Return the rank that the process says, or the next that no other has.

        Raises SourceError for one of another node whose rank another has.
        """
        if member.rank is None:
            if not 0 <= envelope.rank < MOST_RANKS:
                raise SourceError(f"it says that its rank is {envelope.rank}")
            asked, other = envelope.rank, self._ranks.get(envelope.rank)
            if member.node and other is not None:
                raise SourceError(f"it says it is rank {asked}, which another process is")
            member.rank = next(rank for rank in itertools.count(asked) if rank not in self._ranks)
            self._ranks[member.rank] = member
            if other is not None and other.node:
                shown = f"the one here is shown as rank {member.rank}"
                self._sentences.append(f"rank {asked} is on {other.node} already; {shown}")
            before = self._pids.get(member.rank, member.pid)
            self._pids[member.rank] = member.pid
            if before != member.pid:
                which = f"rank {member.rank} began again: training process {member.pid}"
                self._sentences.append(f"{which} follows {before}")
        return member.rank

    def _part_with(self, member: Member) -> None:
        """Let go of it. If it lives it is asked again: it may have had another dashboard."""
        self._members.remove(member)
        if member.rank is not None:
            del self._ranks[member.rank]
        member.close()
        if not self._members:
            self.parted_s = time.monotonic()
        if member.rank is not None and member.key not in self._refused and not member.is_lost:
            member.parted_s = time.monotonic()
            self._gone.append(member)
        if member.node:  # its node keeps it away, and its key never comes again
            self._refused.discard(member.key)

    def _departed(self) -> list[Envelope]:
        """Return which processes have ended while their command lives on."""
        found, now_s = [], time.monotonic()
        for gone in [one for one in self._gone if one.has_ended]:
            if now_s - gone.parted_s <= PATIENCE_S:
                continue
            self._gone.remove(gone)
            others = "; the others go on" if self._members else ""
            self._sentences.append(f"{gone.described} has ended{others}")
            if gone.rank not in self._ranks:  # else another has its place
                parted = Parted(at_s=gone.parted_s, pid=gone.pid)
                rank = gone.rank or 0
                found.append(
                    Envelope(source="training", rank=rank, seq=0, sent_s=now_s, body=parted)
                )
        return found

    def _take_stack(self, member: Member, stack: Stack) -> None:
        """Take where a process of another node is; what comes too late is void."""
        if self._question is not None:
            self._question.take(member, stack)

    def _stacks(self) -> list[Envelope]:
        """Return where the processes are that were asked, once all have said so."""
        answers = None if self._question is None else self._question.answers()
        if answers is None:
            return []
        self._question = None
        return answers


def _began_anew(member: Member, others: list[Member]) -> bool:
    """Tell whether torchrun has restarted the job of the others without their nodes, which it lost.

    It draws a new port then, and its run id stays. Where one of them trains on this node or here,
    it is another job that was given the same id: torchrun ends what it restarts.
    """
    run_id = _run_id(member.job)
    lost = (_run_id(one.job) == run_id and one.node not in ("", member.node) for one in others)
    return bool(run_id) and all(lost)


def _run_id(job: str) -> str:
    """Return what tells this job of torchrun's from all others; empty where nobody has named it."""
    run_id = job.rpartition(":")[0]
    return "" if run_id == "none" else run_id


def _counted_here(pid: int, envelope: Envelope) -> Envelope:
    """Return what a process tells with its number here: it may count itself in a container."""
    if not isinstance(envelope.body, Started) or envelope.body.pid == pid:
        return envelope
    return msgspec.structs.replace(envelope, body=msgspec.structs.replace(envelope.body, pid=pid))
