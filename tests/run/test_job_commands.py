"""Commands for all ranks, over two that answer at once."""

from gpudash.protocol.commands import Blocks, Change
from gpudash.protocol.training import Refused, TooLate
from gpudash.run import job_commands
from gpudash.run.job_commands import JobCommands
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
