"""Commands for all ranks, over two that answer at once."""

import socket
from collections.abc import Iterator
from select import select

import msgspec
import pytest

from gpudash.protocol.commands import AnyCommand, Blocks, Change, Pause, Profile, Resume, Stop
from gpudash.protocol.training import Refused, TooLate
from gpudash.run import job_commands
from gpudash.run.job_commands import JobCommands
from gpudash.run.lines import Lines
from gpudash.run.member import Member
from tests import scripted_worker
from tests.lives import said


class Job:
    """Two ranks, for which the first `times` commands come too late."""

    def __init__(self, times):
        self.commands, self.asked = JobCommands(), []
        self.members = [Rank(0, self, times), Rank(1, self, times)]

    def answers(self, command):
        self.commands.take(command)
        return [one.body for _ in range(9) for one in self.commands.turn(self.members)]


class Rank:
    """One of them, a member of the job."""

    world_size, step = 2, 100

    def __init__(self, rank, job, times):
        self.rank = self.key = rank
        self.job, self.left = job, times

    def steps_in(self, _seconds):
        return 10

    def step_now(self):
        return self.step

    def send(self, command):
        self.job.asked.append(command.at_step)
        self.left -= 1
        mine = (command.id,)
        refused = Refused(answers=mine, kind="bad_setting", changes={}, reason="no")
        body = TooLate(answers=mine) if self.left >= 0 else refused
        self.job.commands.note(said(body, self.rank, 1), self.rank)


def test_a_late_command_is_sent_again_with_a_later_step():
    job = Job(times=2)
    assert job.answers(Change(id=1, settings={})) == []
    first, second, third = job.asked[::2]
    assert job.asked[1::2] == [first, second, third]
    assert [second - 100, third - 100] == [2 * (first - 100), 4 * (first - 100)]


def test_restarted_ranks_get_a_step_that_they_will_reach():
    job = Job(times=0)
    job.answers(Change(id=1, settings={}))
    for one in job.members:
        one.step = 5
        job.commands.note(said(scripted_worker.Worker().start(), one.rank, 1), one.rank)
    job.answers(Change(id=2, settings={}))
    assert job.asked[-1] == job.asked[0] - 95


def test_a_command_that_is_always_late_is_refused():
    job = Job(times=99)
    (refused,) = job.answers(Change(id=1, settings={}))
    assert refused.reason == job_commands.TOO_LATE
    (ended,) = job.answers(Blocks(id=2, run=1, blocks=()))
    assert (ended.answers, ended.why) == ((2,), job_commands.TOO_LATE)
    assert len(job.asked) == 2 * 2 * job_commands.TRIES


# ── which ranks receive one ───────────────────────────────────────────────────────────────


CHANGE = Change(id=1, settings={"batch_size": "4"})


class Connected:
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
def job() -> Iterator[Connected]:
    job = Connected()
    yield job
    job.close()


FOR_ALL = (CHANGE, Blocks(id=1, run=1, blocks=()), Pause(id=1), Resume(id=1), Stop(id=1))


@pytest.mark.parametrize("command", FOR_ALL, ids=lambda one: type(one).__name__)
def test_what_all_ranks_do_together_goes_to_all_with_its_step(job: Connected, command: AnyCommand):
    first, second = job.receivers_of(JobCommands(), command)
    assert first == second
    assert [one.at_step is not None for one in first] == [True]


def test_a_profile_goes_to_rank_0(job: Connected):
    profile = Profile(id=2, steps=3, path="trace.json")
    assert job.receivers_of(JobCommands(), profile) == [[profile], []]


def test_ranks_that_are_known_to_come_are_waited_for(job: Connected):
    commands, late = JobCommands(2), job.members.pop()
    assert job.receivers_of(commands, Stop(id=1)) == [[], []]
    job.members.append(late)
    assert commands.turn(job.members) == []
    assert all(job.received())
