"""Two loaders of a workload, kept while settings of the loader are compared: one rests."""

from collections.abc import Iterator
from multiprocessing import active_children

import pytest

from tests.workloads.trainings import CPU, Make, assert_same, making, train
from workloads.training import WARMUP_STEPS, Training

ONE, TWO = {"num_workers": "1"}, {"num_workers": "2"}


@pytest.fixture
def make() -> Iterator[Make]:
    yield from making("encdec", num_workers="1", prefetch_factor="2")


def kept(make: Make, **levers: str) -> Training:
    training = make(**levers)
    training.keep_loaders(keeps=True)
    return training


def workers() -> set[int | None]:
    return {one.pid for one in active_children()}


@pytest.mark.parametrize("pipelined", ["off", "on"])
def test_the_order_of_the_batches_stays(make: Make, pipelined: str) -> None:
    alone, switched = make(num_workers="0"), kept(make, pipelined=pipelined)
    for changes in (TWO, ONE, {"prefetch_factor": "3"}, {"num_workers": "0"}, TWO):
        assert_same(CPU, train(switched, 5), train(alone, 5))
        switched.change(changes)
    assert_same(CPU, train(switched, 8), train(alone, 8))


def test_what_the_left_loader_holds_comes_first_and_is_warm_up(make: Make) -> None:
    training = kept(make)
    train(training, 1)
    training.change(TWO)
    assert training.warmup_steps == WARMUP_STEPS + 2  # one worker, two batches ahead
    train(training, 3)
    training.change(ONE)
    assert training.warmup_steps == WARMUP_STEPS + 4


def test_the_workers_that_rested_take_over_again(make: Make) -> None:
    training = kept(make)
    first = workers()
    training.change(TWO)
    train(training, 3)
    both = workers()
    for changes in (ONE, TWO, ONE):
        training.change(changes)
        train(training, 5)
    assert (workers(), len(both), first < both) == (both, 3, True)


def test_one_rests_at_most(make: Make) -> None:
    training = kept(make)
    for count in ("2", "3", "4"):
        training.change({"num_workers": count})
        train(training, 8)
    assert len(workers()) == 3 + 4


def test_none_rests_once_none_is_kept(make: Make) -> None:
    training = kept(make)
    training.change(TWO)
    train(training, 3)
    training.change(ONE)
    training.keep_loaders(keeps=False)
    train(training, 5)
    assert len(workers()) == 1


def test_workers_that_were_killed_while_they_rested_are_replaced(make: Make) -> None:
    training = kept(make)
    (resting,) = active_children()
    training.change(TWO)
    train(training, 3)
    resting.kill()
    resting.join()
    training.change(ONE)
    train(training, 6)
    assert len(workers() - {resting.pid}) == 3


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
    assert len(workers()) == 1


@pytest.mark.parametrize("steps", [0, 3])  # before and after the second loader takes over
def test_no_worker_is_left_at_the_end(make: Make, steps: int) -> None:
    training = kept(make)
    train(training, 1)
    training.change(TWO)
    train(training, steps)
    assert len(workers()) == 3
    training.close()
    assert workers() == set()


def test_back_to_what_worked_ends_both_loaders(make: Make) -> None:
    """A step ran out of memory, say."""
    alone, training = make(num_workers="0"), kept(make)
    assert_same(CPU, train(training, 1), train(alone, 1))
    training.change(TWO)
    assert_same(CPU, train(training, 3), train(alone, 3))
    training.change({"num_workers": "3"})
    before = workers()
    training.recover(training.settings | ONE)
    assert len(workers()) == 1
    assert workers().isdisjoint(before)
    assert_same(CPU, train(training, 4), train(alone, 4))
