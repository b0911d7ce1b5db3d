"""Which ranks receive a command."""

import socket
from collections.abc import Iterator
from select import select

import msgspec
import pytest

from gpudash.protocol.commands import AnyCommand, Blocks, Change, Pause, Profile, Resume, Stop
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
        return self.received()

    def received(self) -> list[list[AnyCommand]]:
        """Return what each rank has received since the last call."""
        waiting, *_ = select(self._theirs, [], [], 0)
        received = [one.recv(1 << 16) if one in waiting else b"" for one in self._theirs]
        return [
            [msgspec.json.decode(line, type=AnyCommand) for line in one.splitlines()]
            for one in received
        ]

    def close(self) -> None:
        for member, theirs in zip(self.members, self._theirs, strict=True):
            member.close()
            theirs.close()


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    yield job
    job.close()


FOR_ALL = (CHANGE, Blocks(id=1, run=1, blocks=()), Pause(id=1), Resume(id=1), Stop(id=1))


@pytest.mark.parametrize("command", FOR_ALL, ids=lambda one: type(one).__name__)
def test_what_all_ranks_do_together_goes_to_all_with_its_step(job: Job, command: AnyCommand):
    first, second = job.receivers_of(JobCommands(), command)
    assert first == second
    assert [one.at_step is not None for one in first] == [True]


def test_a_profile_goes_to_rank_0(job: Job):
    profile = Profile(id=2, steps=3, path="trace.json")
    assert job.receivers_of(JobCommands(), profile) == [[profile], []]


def test_ranks_that_are_known_to_come_are_waited_for(job: Job):
    commands, late = JobCommands(2), job.members.pop()
    assert job.receivers_of(commands, Stop(id=1)) == [[], []]
    job.members.append(late)
    assert commands.turn(job.members) == []
    assert all(job.received())
