"""Find all training processes of a run, read their messages and send them commands."""

import itertools
import os
import signal
import time
from contextlib import suppress
from functools import partial

import msgspec

from gpudash.errors import UNDECODABLE, SourceError
from gpudash.protocol.commands import AnyCommand, Figures, Stacks
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.inspections import Stack
from gpudash.protocol.session import Notice
from gpudash.protocol.training import Hello, State, TooLate
from gpudash.rendezvous import Rendezvous
from gpudash.run import stacks
from gpudash.run.job_commands import JobCommands
from gpudash.run.lines import Lines, StackReply, ask
from gpudash.run.member import Arrivals, Key, Member, peer
from gpudash.run.nodes import Nodes

MOST_RANKS = 1 << 16
"""Most ranks of a job: a process that reports a higher rank is refused."""
PATIENCE_S = 1.0
"""A process's end is reported if its command is still running after this."""


class TrainingProcesses:
    """All training processes of a run; each has a rank of its own."""

    def __init__(
        self, place: Rendezvous, nodes: Nodes | None = None, *, world_size: int | None = None
    ) -> None:
        self._place = place
        self._arrivals = Arrivals(place)
        self._nodes = nodes
        self._members: list[Member] = []
        self._ranks: dict[int, Member] = {}  # those that have sent a message
        self._refused: set[Key] = set()  # invalid, or of another job
        self._left_out: set[str] = set()  # other jobs, each reported once
        self.parted_s: float | None = None
        """When the last one hung up; None while one trains."""
        self._commands = JobCommands(world_size)
        self._gone: list[Member] = []  # disconnected; some may still run
        self._sentences: list[str] = []
        self._pids: dict[int, int] = {}  # newest process of each rank
        self._question: stacks.StacksQuestion | None = None

    @property
    def filenos(self) -> tuple[int, ...]:
        speaker = self._ranks.get(0)
        of_nodes = () if self._nodes is None else (self._nodes.fileno(),)
        return of_nodes if speaker is None else (*of_nodes, *speaker.filenos)

    def has_mark(self, what: str) -> bool:
        return bool(self._arrivals.marks.get(what))

    def read(self) -> list[Envelope]:
        """Ranks are as shown here; sequence numbers are the processes' own."""
        self._look()
        found = [] if self._nodes is None else self._nodes.readings()
        for member in list(self._members):
            if member not in self._members:  # replaced by a restarted job
                continue
            try:
                envelopes = member.read()
                for envelope in envelopes if self._is_watched(member) else ():
                    if isinstance(envelope.body, Stack):
                        if self._question is not None:  # else it is late
                            self._question.take(member, envelope.body)
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
        return [*found, *self._commands.turn(self._members), *self._stacks()]

    def departed(self) -> list[Envelope]:
        """Return the states of ranks whose process has ended although the command runs on."""
        found, now_s = [], time.monotonic()
        late = [one for one in self._gone if now_s - one.parted_s > PATIENCE_S]
        for gone in [one for one in late if one.has_ended]:
            self._gone.remove(gone)
            others = "; the others go on" if self._members else ""
            self._sentences.append(f"{gone.described} has ended{others}")
            if gone.rank not in self._ranks:  # else another process has the rank
                parted = State(at_s=gone.parted_s, phase="parted")
                rank = gone.rank or 0
                found.append(
                    Envelope(source="training", rank=rank, seq=0, sent_s=now_s, body=parted)
                )
        return found

    def notices(self) -> list[Notice]:
        notices = [Notice(text=sentence) for sentence in self._sentences]
        self._sentences.clear()
        return notices

    def send(self, command: AnyCommand) -> list[Envelope]:
        """Send a command to rank 0, or to all; return answers if none will come."""
        self._commands.take(command)
        return self._commands.turn(self._members)

    def track(self, figures: Figures) -> None:
        if (speaker := self._ranks.get(0)) is not None:
            speaker.track(figures)

    def ask_for_stacks(self, command: Stacks) -> None:
        if self._nodes is not None:
            self._nodes.ask(command)
        self._question = stacks.StacksQuestion(command, self._place, self._members)

    def stack(self) -> StackReply | None:
        lead = next((one for one in self._members if one.rank == 0 and one.is_seen), None)
        return None if lead is None else ask(self._place, lead.pid)

    def let_go(self) -> list[Envelope]:
        """Let the processes train on; return their parting for the session."""
        now_s, ranks = time.monotonic(), sorted(self._ranks)
        for member in list(self._members):
            self._part_with(member)
        self._gone.clear()  # whoever watches now sees their end
        return [
            Envelope(
                source="training",
                rank=rank,
                seq=0,
                sent_s=now_s,
                body=State(at_s=now_s, phase="parted"),
            )
            for rank in ranks
        ]

    def kill(self) -> None:
        for member in self._members:
            if member.is_seen:
                with suppress(OSError):
                    os.kill(member.pid, signal.SIGKILL)

    def close(self) -> None:
        for member in self._members:
            member.close()
        self._members.clear()
        self._ranks.clear()
        if self._nodes is not None:
            self._nodes.close()
            self._nodes = None

    def _look(self) -> None:
        known = self._refused | {member.key for member in self._members}
        for key, connection in self._arrivals.look(known):
            pid = peer(connection)
            number, is_seen = pid or key[0], pid > 0
            counted_here = partial(_counted_here, number)
            self._add(
                Member(key, number, Lines(connection), converted=counted_here, is_seen=is_seen)
            )
        if self._nodes is not None:
            for channel in self._nodes.turn():
                self._add(
                    Member(channel, channel.process, channel, channel.node, channel.converted)
                )
            self._sentences += self._nodes.sentences
            self._nodes.sentences.clear()

    def _add(self, member: Member) -> None:
        self._members.append(member)
        self.parted_s = None
        self._gone = [one for one in self._gone if not one.is_same_process(member)]

    def _is_watched(self, member: Member) -> bool:
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
        self._members.remove(member)
        if member.rank is not None:
            del self._ranks[member.rank]
        member.close()
        if not self._members:
            self.parted_s = time.monotonic()
        if member.rank is not None and member.key not in self._refused and not member.is_lost:
            member.parted_s = time.monotonic()
            self._gone.append(member)
        if member.node:  # its node refuses it, and its key never comes again
            self._refused.discard(member.key)

    def _stacks(self) -> list[Envelope]:
        answers = None if self._question is None else self._question.answers()
        if answers is None:
            return []
        self._question = None
        return answers


def _began_anew(member: Member, others: list[Member]) -> bool:
    """Return whether torchrun has restarted the others' job without their nodes, which are lost.

    A restart has a new port and the same run id. If one of the others trains on this node or here,
    the job is another one with the same id: torchrun ends the processes that it restarts.
    """
    run_id = _run_id(member.job)
    lost = (_run_id(one.job) == run_id and one.node not in ("", member.node) for one in others)
    return bool(run_id) and all(lost)


def _run_id(job: str) -> str:
    run_id = job.rpartition(":")[0]
    return "" if run_id == "none" else run_id


def _counted_here(pid: int, envelope: Envelope) -> Envelope:
    """Return the message with the process id used here: a container counts its own."""
    body = envelope.body
    if not isinstance(body, State) or body.process is None or body.process.pid == pid:
        return envelope
    process = msgspec.structs.replace(body.process, pid=pid)
    return msgspec.structs.replace(envelope, body=msgspec.structs.replace(body, process=process))
