"""Which ranks receive a command."""

import socket
from collections.abc import Iterator

import msgspec
import pytest

from gpudash.protocol import AnyCommand, Change, Pause
from gpudash.run.job_commands import JobCommands
from gpudash.run.lines import Lines
from gpudash.run.member import Member

CHANGE = Change(id=1, settings={"batch_size": "4"})


class Job:
    """Two ranks, and the commands that each received."""

    def __init__(self) -> None:
        pairs = [socket.socketpair() for _ in range(2)]
        self.members = [Member(rank, rank, Lines(ours)) for rank, (ours, _) in enumerate(pairs)]
        for rank, member in enumerate(self.members):
            member.rank, member.world_size = rank, 2
        self._theirs = [theirs for _, theirs in pairs]

    def receivers_of(self, commands: JobCommands, command: AnyCommand) -> list[list[AnyCommand]]:
        """Send the command; return what each rank receives."""
        commands.take(command)
        assert commands.turn(self.members) == []
        return [self._received(theirs) for theirs in self._theirs]

    def _received(self, theirs: socket.socket) -> list[AnyCommand]:
        try:
            received = theirs.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        return [msgspec.json.decode(line, type=AnyCommand) for line in received.splitlines()]

    def close(self) -> None:
        for member, theirs in zip(self.members, self._theirs, strict=True):
            member.close()
            theirs.close()


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.close()


def test_all_ranks_of_a_script_receive_a_change_with_its_step(job: Job):
    first, second = job.receivers_of(JobCommands(), CHANGE)
    assert first == second
    assert [one.at_step is not None for one in first] == [True]


def test_only_rank_0_receives_a_change_if_it_leads_the_others(job: Job):
    assert job.receivers_of(JobCommands(rank_0_leads=True), CHANGE) == [[CHANGE], []]


def test_other_commands_go_to_rank_0(job: Job):
    assert job.receivers_of(JobCommands(), Pause(id=2)) == [[Pause(id=2)], []]
