"""Two loaders of a workload, kept while settings of the loader are compared: one rests."""

import pytest

from tests.resting_loaders import (
    MORE,
    pids,
    test_a_resting_worker_that_is_killed_harms_nothing_and_is_replaced,
    test_no_worker_is_left_at_the_end,
    test_none_rests_once_the_blocks_have_ended,
    test_two_loaders_are_kept_at_most,
    test_workers_rest_and_take_over_again,
)
from tests.workloads.trainings import CPU, Make, assert_same, train
from workloads.training import WARMUP_STEPS, Training

MAKES = ("encdec", {"num_workers": "1", "prefetch_factor": "2"})

__all__ = [
    "test_a_resting_worker_that_is_killed_harms_nothing_and_is_replaced",
    "test_no_worker_is_left_at_the_end",
    "test_none_rests_once_the_blocks_have_ended",
    "test_two_loaders_are_kept_at_most",
    "test_workers_rest_and_take_over_again",
]
ONE, TWO = {"num_workers": "1"}, {"num_workers": "2"}


def kept(make: Make, **levers: str) -> Training:
    training = make(**levers)
    training.keep_loaders(keeps=True)
    return training


class Feed:
    """A workload's loader, with a training beside it that loads its batches itself."""

    started_anew = 0

    def __init__(self, make: Make) -> None:
        self.alone, self.training = make(num_workers="0"), kept(make)

    def block(self, workers: str) -> None:
        self.training.change({"num_workers": workers})

    def take(self) -> None:
        assert_same(CPU, train(self.training, MORE), train(self.alone, MORE))

    def blocks_end(self) -> None:
        self.training.keep_loaders(keeps=False)
        self.take()

    def leave(self) -> None:
        self.training.close()


@pytest.fixture
def feed(make: Make) -> Feed:
    return Feed(make)


def test_the_order_of_the_batches_stays_on_two_streams_too(make: Make) -> None:
    alone, switched = make(num_workers="0"), kept(make, pipelined="on")
    for changes in (TWO, ONE, {"prefetch_factor": "3"}, {"num_workers": "0"}, TWO):
        assert_same(CPU, train(switched, 3), train(alone, 3))
        switched.change(changes)
    assert_same(CPU, train(switched, MORE), train(alone, MORE))


def test_what_the_left_loader_holds_comes_first_and_is_warm_up(make: Make) -> None:
    training = kept(make)
    train(training, 1)
    training.change(TWO)
    assert training.warmup_steps == WARMUP_STEPS + 2  # one worker, two batches ahead
    train(training, 3)
    training.change(ONE)
    assert training.warmup_steps == WARMUP_STEPS + 4


def test_back_before_the_other_loader_has_begun(make: Make) -> None:
    alone, training = make(num_workers="0"), kept(make)
    assert_same(CPU, train(training, 1), train(alone, 1))
    training.change(TWO)
    training.change(ONE)
    assert_same(CPU, train(training, 5), train(alone, 5))


def test_other_batches_have_a_loader_of_their_own(make: Make) -> None:
    """What a loader holds has the size of before, and is not trained on with another one."""
    alone, training = make(num_workers="0"), kept(make)
    assert_same(CPU, train(training, 2), train(alone, 2))
    for one in (alone, training):
        one.change({"batch_size": "3"})
    assert_same(CPU, train(training, 3), train(alone, 3))
    assert len(pids()) == 1


def test_back_to_what_worked_ends_both_loaders(make: Make) -> None:
    """A step ran out of memory, say."""
    alone, training = make(num_workers="0"), kept(make)
    assert_same(CPU, train(training, 1), train(alone, 1))
    training.change(TWO)
    assert_same(CPU, train(training, 3), train(alone, 3))
    training.change({"num_workers": "3"})
    before = pids()
    training.recover(training.settings | ONE)
    assert len(pids()) == 1
    assert pids().isdisjoint(before)
    assert_same(CPU, train(training, 4), train(alone, 4))
