"""Which share of a run's training time each limit had, and when it became the limit."""

import pytest
from msgspec.structs import replace

from gpudash.diagnosis.limits import Limits
from gpudash.protocol.answer import Answer, AnswerShown
from tests.scripted_run import BEGAN_S, Trainer

WAITS = Answer(limit="data", title="input-bound", evidence=("waits 3.00 of 10.0 ms",))
BUSY = Answer(limit="gpu", title="GPU-bound")


class Run:
    def __init__(self):
        self.limits, self.trainer = Limits(), Trainer()

    def train(self, seconds, answer):
        for progress in self.trainer.steps(round(seconds / 0.05)):
            self.limits.fold(progress, answer)

    def shares(self):
        return {one.answer.title: round(one.share, 3) for one in self.limits.shares()}


@pytest.fixture
def run():
    return Run()


def test_a_limit_has_the_time_of_the_steps_while_it_was_the_answer(run):
    run.train(6.0, WAITS)
    run.train(3.0, BUSY)
    run.train(1.0, WAITS)
    first, other = run.limits.shares()
    assert (first.answer, first.share) == (WAITS, pytest.approx(0.7))
    assert first.seconds == pytest.approx(7.0)
    assert first.began_s == (BEGAN_S + 0.05, pytest.approx(BEGAN_S + 9.05))
    assert other.began_s == (pytest.approx(BEGAN_S + 6.05),)
    assert run.limits.main() == "input-bound for 70 % of the training time"


def test_steps_before_an_answer_are_part_of_it_but_not_those_of_other_settings(run):
    run.train(1.0, None)
    run.train(4.0, WAITS)
    assert run.shares() == {"input-bound": 1.0}
    run.limits.fold(run.trainer.change(batch_size="16"), None)
    run.train(1.0, None)
    run.limits.fold(run.trainer.change(batch_size="32"), None)
    run.train(1.0, None)
    run.train(3.0, BUSY)
    assert run.shares() == {"input-bound": 0.5, "GPU-bound": 0.4}


def test_an_answer_that_comes_after_the_last_step_has_the_steps_before_it(run):
    run.train(0.5, None)
    run.limits.fold(AnswerShown(at_s=run.trainer.now_s, answer=WAITS), WAITS)
    assert run.shares() == {"input-bound": 1.0}


def test_neither_a_pause_nor_an_a_b_counts(run):
    run.train(2.0, WAITS)
    run.limits.fold(run.trainer.wait(10.0), WAITS)
    changed = run.trainer.change(pipelined="on")
    for block in (0, None):
        run.limits.fold(replace(changed, run=1, block=block), WAITS)
        run.train(2.0, WAITS if block is not None else BUSY)
    assert run.shares() == {"input-bound": 0.5, "GPU-bound": 0.5}


def test_without_an_answer_nothing_is_said(run):
    run.train(1.0, None)
    assert (run.limits.shares(), run.limits.main()) == ([], "")
