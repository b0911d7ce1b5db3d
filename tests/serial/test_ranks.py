"""Levers of a DDP training that torchrun starts: all ranks switch at the same step, or none."""

import sys
import time
from collections import defaultdict
from itertools import count, cycle, pairwise
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory

import pytest

from gpudash import rendezvous
from gpudash.protocol import (
    Block,
    Blocks,
    BlocksEnded,
    Change,
    Changed,
    Printed,
    Profile,
    Profiled,
    Progress,
    Refused,
    Started,
)
from gpudash.run.held import keep
from gpudash.run.job_commands import JobCommands
from gpudash.run.script import ScriptSource
from gpudash.run.user_command import UserCommand

SCRIPT = str(Path(__file__).parents[1] / "run" / "ddp_script.py")
WORLD_SIZE = 3
WAIT_S = 60.0
FUSED, SINGLE = {"fused_optimizer": "fused"}, {"fused_optimizer": "single"}


class Ranks:
    """A training of several ranks, and what its dashboards have heard."""

    def __init__(self, folder, *words):
        self.ids, self.forms = count(1), cycle(("fused", "foreach", "single"))
        self.place = rendezvous.begin()
        self.end_file = folder / "end"
        torchrun = (sys.executable, "-m", "torch.distributed.run")
        how = ("--standalone", f"--nproc-per-node={WORLD_SIZE}", SCRIPT, str(self.end_file))
        self.held = keep(UserCommand("train.py", (*torchrun, *how, *words)), self.place)
        self.join()

    def join(self):
        """Watch it, and no longer as the dashboard before."""
        self.envelopes = []
        self.source = ScriptSource("train.py", self.held, self.place)
        self.until(lambda: len(self.of(Started)) == WORLD_SIZE)
        self.trains_on()

    def trains_on(self):
        heard = len(self.envelopes)
        self.until(
            lambda: {
                one.rank for one in self.envelopes[heard:] if isinstance(one.body, Progress)
            }.issuperset(range(WORLD_SIZE))
        )

    def leave(self):
        """Leave it without a word, as a dashboard that is killed."""
        self.source._processes.close()

    def until(self, condition):
        end_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end_s, [self.of(Refused), self.of(BlocksEnded)]
            self.envelopes += self.source.read()
            time.sleep(0.01)

    def of(self, kind, rank=None):
        return [
            one.body
            for one in self.envelopes
            if isinstance(one.body, kind) and rank in (None, one.rank)
        ]

    def answers(self, number):
        return {
            one.rank: one.body
            for one in self.envelopes
            if number in getattr(one.body, "answers", ())
        }

    def ask(self, command):
        """Return every rank's answer."""
        self.source.send(command)
        self.until(lambda: len(self.answers(command.id)) == WORLD_SIZE)
        return list(self.answers(command.id).values())

    def ask_one(self, rank, command):
        member = next(one for one in self.source._processes._members if one.rank == rank)
        member.send(command)

    def switch(self):
        """Change a lever: nothing that was asked before is in the way."""
        change = Change(id=next(self.ids), settings={"fused_optimizer": next(self.forms)})
        assert len(steps_of(self.ask(change))) == 1

    def settings(self):
        ranks = range(WORLD_SIZE)
        return [self.of(Started | Changed, rank)[-1].settings for rank in ranks]

    def says_at_its_end(self):
        self.end_file.touch()
        self.until(self.source.ended)
        printed = [line for one in self.of(Printed) for line in one.lines]
        return [line for line in printed if line.startswith("weights")]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Ranks that keep equal weights to their end. One can have no loader workers for now."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(dir="/tmp") as short_path:
        patch.setenv("XDG_RUNTIME_DIR", short_path)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        patch.setenv("OMP_NUM_THREADS", "1")
        training = Ranks(tmp_path_factory.mktemp("ranks"), "--no-workers", "1")
        try:
            yield training
            assert training.says_at_its_end() == ["weights equal"]
        finally:
            training.source._processes.kill()
            training.held.signal(SIGKILL)
            training.source.close()


def steps_of(answers):
    assert {type(one) for one in answers} == {Changed}, answers
    return {one.after_step for one in answers}


def ab(number, run, *, min_steps=5):
    blocks = [
        Block(number=i, changes=one, min_steps=min_steps, min_s=0.05)
        for i, one in enumerate((FUSED, SINGLE, SINGLE, FUSED))
    ]
    return Blocks(id=number, run=run, blocks=tuple(blocks))


def test_what_one_rank_cannot_take_is_put_back_on_all(ranks):
    refused = ranks.ask(Change(id=next(ranks.ids), settings={"num_workers": "1"}))
    assert sorted(one.reason for one in refused) == [
        "OSError: no such file",
        *["rank 1: OSError: no such file"] * 2,
    ]
    ranks.leave()
    ranks.join()
    assert [one["num_workers"] for one in ranks.settings()] == ["0"] * WORLD_SIZE
    ranks.switch()


def test_all_ranks_change_at_the_same_step(ranks):
    ranks.end_file.with_name("workers").touch()
    form = {"fused_optimizer": next(ranks.forms)}
    changes = (form, {"precision": "bf16"}, {"num_workers": "1"}, {"precision": "script"})
    at = [
        steps_of(ranks.ask(Change(id=next(ranks.ids), settings=settings))) for settings in changes
    ]
    assert [len(steps) for steps in at] == [1] * len(changes)
    assert sorted(at, key=min) == at

    ranks.ask(ab(next(ranks.ids), 1))
    by_rank = defaultdict(list)
    for one in ranks.envelopes:
        if isinstance(one.body, Changed) and one.body.run == 1:
            by_rank[one.rank].append((one.body.block, one.body.after_step, one.body.settings))
    assert [block for block, *_ in by_rank[0]] == [0, 1, 2, 3, None]
    assert all(by_rank[rank] == by_rank[0] for rank in range(WORLD_SIZE))
    warmup_steps = ranks.of(Changed, 0)[-1].warmup_steps
    lengths = [after[1] - before[1] for before, after in pairwise(by_rank[0])]
    assert min(lengths) >= 5 + 1 + warmup_steps


def test_a_rank_that_never_hears_of_it_costs_the_others_their_patience_alone(ranks):
    number, step = next(ranks.ids), ranks.of(Progress, 0)[-1].total_steps
    for rank in (0, 2):
        ranks.ask_one(rank, Change(id=number, settings={"precision": "bf16"}, at_step=step + 200))
    ranks.until(lambda: len(ranks.answers(number)) == 2)
    assert {one.reason for one in ranks.answers(number).values()} == {
        "rank 1 did not answer within 2 s"
    }
    ranks.switch()


def test_what_ranks_hear_of_after_its_step_is_asked_again_and_then_taken(ranks, monkeypatch):
    over, real = iter([1]), JobCommands._step_for_all
    monkeypatch.setattr(JobCommands, "_step_for_all", lambda *how: next(over, None) or real(*how))
    ranks.switch()
    assert next(over, None) is None


def test_a_dashboard_that_is_killed_before_the_step_of_a_change_leaves_all_ranks_alike(ranks):
    ranks.source.send(Change(id=next(ranks.ids), settings={"fused_optimizer": next(ranks.forms)}))
    ranks.leave()
    ranks.join()
    first, *others = ranks.settings()
    assert others == [first] * (WORLD_SIZE - 1)
    ranks.switch()


def test_a_dashboard_that_is_killed_in_a_block_has_all_ranks_go_back_at_the_same_step(ranks):
    before = ranks.settings()
    ranks.source.send(ab(next(ranks.ids), 1, min_steps=10**6))
    ranks.until(lambda: len(ranks.of(Changed)) == WORLD_SIZE)
    ranks.leave()
    ranks.join()
    assert ranks.settings() == before
    ranks.switch()


def test_a_profile_of_rank_0_alone_keeps_no_rank_from_training(ranks, tmp_path):
    number = next(ranks.ids)
    ranks.source.send(Profile(id=number, steps=3, path=str(tmp_path / "trace.json")))
    ranks.until(lambda: ranks.answers(number))
    assert isinstance(ranks.answers(number)[0], Profiled)
    ranks.trains_on()
    ranks.switch()
