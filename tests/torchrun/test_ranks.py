"""Levers of a DDP training that torchrun starts: all ranks switch at the same step, or none."""

import csv
import sys
import time
from collections import defaultdict
from itertools import count, cycle, pairwise
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory

import pytest

from gpudash import rendezvous
from gpudash.cli.headless import News
from gpudash.protocol.commands import Change, Plan, Profile
from gpudash.protocol.inspections import Profiled
from gpudash.protocol.training import Progress, State
from gpudash.run.command_process import keep
from gpudash.run.job import TrainingJob
from gpudash.run.job_commands import JobCommands
from gpudash.run.replayed import replayed
from gpudash.run.session import Session
from gpudash.run.user_command import UserCommand
from tests.answers import blocks
from tests.watched import Watched

SCRIPT = str(Path(__file__).with_name("ddp_script.py"))
TOO_MANY = "2"
WAIT_S = 200.0
FORMS = {"fused_optimizer": "fused"}, {"fused_optimizer": "single"}
AVERAGES = {"grad_sync": "last"}, {"grad_sync": "each"}
SIDES = pytest.mark.parametrize(("run", "sides"), [(1, FORMS), (2, AVERAGES)])
"""A rank that moved `grad_sync` alone would wait for the other one for ever."""


class Ranks(Watched):
    """A training of several ranks, and what its dashboards have heard."""

    def __init__(self, folder, world_size, *words):
        self.world_size = world_size
        self.ids, self.forms = count(1), cycle(("fused", "foreach", "single"))
        self.place = rendezvous.begin()
        self.place.begin_with({"gc": "frozen"})
        self.end_file = folder / "end"
        torchrun = (sys.executable, "-m", "torch.distributed.run")
        how = ("--standalone", f"--nproc-per-node={world_size}", SCRIPT, str(self.end_file))
        self.held = keep(UserCommand("train.py", (*torchrun, *how, *words)), self.place)
        self.join()

    def join(self):
        """Watch it, and no longer as the dashboard before."""
        super().__init__(TrainingJob("train.py", self.held, self.place))
        self.until(lambda: len(self.of("started")) == self.world_size)
        self.trains_on()

    def trains_on(self):
        heard = len(self.envelopes)
        self.until(
            lambda: {
                one.rank for one in self.envelopes[heard:] if isinstance(one.body, Progress)
            }.issuperset(range(self.world_size))
        )

    def leave(self):
        """Leave it without a word, as a dashboard that is killed."""
        self.source._processes.close()

    def ask_one(self, rank, command):
        member = next(one for one in self.source._processes._members if one.rank == rank)
        member.send(command)

    def switch(self):
        """Change a lever: nothing that was asked before is in the way."""
        change = Change(id=next(self.ids), settings={"fused_optimizer": next(self.forms)})
        assert len(steps_of(self.ask(change, 2))) == 1

    def settings(self):
        states = {one.rank: one.body for one in self.envelopes if isinstance(one.body, State)}
        return [states[rank].settings for rank in range(self.world_size)]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two ranks, one of which cannot have TOO_MANY loader workers; the last test ends them."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(dir="/tmp") as short_path:
        patch.setenv("GPUDASH_RUN_DIR", short_path)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        patch.setenv("OMP_NUM_THREADS", "1")
        training = Ranks(tmp_path_factory.mktemp("ranks"), 2, "--too-many", TOO_MANY)
        try:
            yield training
        finally:
            training.source._processes.kill()
            training.held.signal(SIGKILL)
            training.source.close()


def steps_of(answers):
    assert {type(one) for one in answers} == {State}, answers
    return {one.after_step for one in answers}


def ab(number, run, sides, min_steps=5):
    a, b = sides
    return blocks(number, run, a, b, b, a, min_steps=min_steps, min_s=0.05)


def test_all_ranks_of_a_torchrun_name_the_same_job(two):
    (job,) = {member.job for member in two.source._processes._members}
    assert job


def test_all_ranks_begin_with_what_was_asked_for_at_the_same_step(two):
    assert [one["gc"] for one in two.settings()] == ["frozen", "frozen"]
    steps = [[one for told in two.of(Progress, rank) for one in told.steps] for rank in (0, 1)]
    before = {max(one.step for one in of_rank if one.segment == 0) for of_rank in steps}
    assert len(before) == 1
    assert max(before) < 8


def test_what_one_rank_cannot_take_is_put_back_on_all(two):
    # before the others: only the first workers that a loader has are tried out
    refused = two.ask(Change(id=next(two.ids), settings={"num_workers": TOO_MANY}), 2)
    assert sorted(one.reason for one in refused) == [
        "OSError: no such file",
        "rank 1: OSError: no such file",
    ]
    two.leave()
    two.join()
    assert [one["num_workers"] for one in two.settings()] == ["0", "0"]
    two.switch()


def test_all_ranks_change_at_the_same_step(two):
    changes = (
        {"precision": "bf16"},
        {"precision": "fp32"},
        {"num_workers": "1"},
        {"num_workers": "0"},
    )
    at = [steps_of(two.ask(Change(id=next(two.ids), settings=one), 2)) for one in changes]
    assert [len(steps) for steps in at] == [1] * len(changes)
    assert sorted(at, key=min) == at


@SIDES
def test_all_ranks_begin_and_end_each_block_at_the_same_step(two, run, sides):
    two.ask(ab(next(two.ids), run, sides), 2)
    by_rank = defaultdict(list)
    for rank in (0, 1):
        changes = two.of("changed", rank)
        first = next(at for at, one in enumerate(changes) if one.run == run)
        for one in changes[first:]:
            by_rank[rank].append((one.block, one.after_step, one.settings))
    assert [block for block, *_ in by_rank[0]] == [0, 1, 2, 3, None]
    assert by_rank[1] == by_rank[0]
    warmup_steps = two.of("changed", 0)[-1].warmup_steps
    lengths = [after[1] - before[1] for before, after in pairwise(by_rank[0])]
    assert min(lengths) >= 5 + 1 + warmup_steps


def test_a_rank_that_never_hears_of_it_costs_the_others_their_patience_alone(two):
    number, step = next(two.ids), two.of(Progress, 0)[-1].total_steps
    two.ask_one(0, Change(id=number, settings={"precision": "bf16"}, at_step=step + 50))
    two.until(lambda: two.answers(number))
    assert two.answers(number)[0].reason == "rank 1 did not answer within 10 s"
    two.switch()


def test_what_ranks_hear_of_after_its_step_is_asked_again_and_then_taken(two, monkeypatch):
    over, real = iter([1]), JobCommands._step_for_all
    monkeypatch.setattr(JobCommands, "_step_for_all", lambda *how: next(over, None) or real(*how))
    two.switch()
    assert next(over, None) is None


def test_a_dashboard_that_is_killed_before_the_step_of_a_change_leaves_all_ranks_alike(two):
    two.source.send(Change(id=next(two.ids), settings={"fused_optimizer": next(two.forms)}))
    two.leave()
    two.join()
    one, other = two.settings()
    assert one == other
    two.switch()


@SIDES
def test_a_dashboard_that_is_killed_in_a_block_has_all_ranks_go_back_at_the_same_step(
    two, run, sides
):
    before = two.settings()
    two.source.send(ab(next(two.ids), run, sides, min_steps=10**6))
    two.until(
        lambda: all(any(one.run == run for one in two.of("changed", rank)) for rank in (0, 1))
    )
    two.leave()
    two.join()
    assert two.settings() == before
    two.switch()


def test_a_profile_of_rank_0_alone_keeps_no_rank_from_training(two, tmp_path):
    number = next(two.ids)
    two.source.send(Profile(id=number, steps=3, path=str(tmp_path / "trace.json")))
    two.until(lambda: two.answers(number))
    assert isinstance(two.answers(number)[0], Profiled)
    two.trains_on()
    two.switch()


def test_at_last_the_weights_are_equal_and_each_ranks_processes_were_read_shown_and_recorded(
    two, tmp_path
):
    two.leave()
    path, news = tmp_path / "run.csv", News()
    source = two.source = TrainingJob("train.py", two.held, two.place)
    session = Session(Plan(workload="train.py", settings={}), start_source=lambda _: source)
    session.begin_sink("recording", path)
    session.start(news)
    try:
        end_s = time.monotonic() + WAIT_S
        while not has_host_of(2, news.snapshot.ranks):
            assert time.monotonic() < end_s
            session.wait(0.05)
        two.end_file.touch()
        assert session.wait(WAIT_S), news.snapshot.hang
    finally:
        session.close()
    assert "weights equal" in news.lines
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name in ("cpu_pct", "worker_rss_mib"):
        assert {row["rank"] for row in rows if row[name]} == {"0", "1"}
    assert len({row["worker_rss_mib"] for row in rows if row["worker_rss_mib"]}) > 1
    assert [row.host is not None for row in replayed(path).snapshot.ranks] == [True] * 2


def has_host_of(count, ranks):
    return len(ranks) == count and all(
        row.host is not None and row.host.number("cpu_pct") for row in ranks
    )
