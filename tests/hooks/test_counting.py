"""Plain steps that are only counted, one call for each of their events."""

import time
import weakref
from threading import Thread, get_ident
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpudash.hooks.counting import Counting
from gpudash.hooks.tally import Tally


class Iterator:
    """Stands for a DataLoader's."""


ITERATOR, OPTIMIZER = Iterator(), object()


def counting(*, border_at=0, due_s=float("inf"), keeps_loss=True):
    counts = SimpleNamespace(steps=10, skipped=0, next_begun=False)
    tally = Tally()
    one = Counting(
        counts,
        tally,
        thread=get_ident(),
        optimizer=id(OPTIMIZER),
        iterator=weakref.ref(ITERATOR),
        keeps_loss=keeps_loss,
        border_at=border_at,
        due_s=due_s,
    )
    return one, counts, tally


def elsewhere(run):
    """What it returns on another thread."""
    results = []
    thread = Thread(target=lambda: results.append(run()))
    thread.start()
    thread.join()
    return results[0]


def test_a_step_is_counted_and_the_next_one_has_not_begun():
    one, counts, _ = counting()
    assert one.backward_begins(torch.tensor(1.0))
    assert counts.next_begun
    assert one.optimizer_ends()
    assert (counts.steps, counts.skipped, counts.next_begun) == (11, 1, False)


@pytest.mark.parametrize("why", [{"border_at": 11}, {"due_s": 0.0}])
def test_a_step_that_is_measured_next_is_left_to_the_tracker(why):
    one, counts, _ = counting(**why)
    assert not one.optimizer_ends()
    assert (counts.steps, counts.skipped) == (10, 0)


def test_another_thread_is_left_to_the_tracker():
    one, counts, _ = counting()
    assert not elsewhere(lambda: one.backward_begins(torch.tensor(1.0)))
    assert not elsewhere(one.optimizer_ends)
    assert (counts.steps, counts.next_begun) == (10, False)


def test_samples_of_lists_of_tensors_are_counted_and_all_else_is_left_to_the_tracker():
    one, _, tally = counting()
    asked_s = time.monotonic()
    assert one.batch_arrived([torch.ones(8, 3), torch.ones(8)], asked_s)
    assert one.batch_arrived((torch.ones(5),), asked_s)
    for other in ({"x": torch.ones(8)}, torch.ones(8), [], [torch.tensor(1.0)], ["x"]):
        assert not one.batch_arrived(other, asked_s)
    assert (tally.batches, tally.fetched) == (2, 13)
    assert tally.data_s > 0
    tally.fetched = None  # an earlier batch had no known size
    assert one.batch_arrived([torch.ones(8)], asked_s)
    assert tally.fetched is None


def test_the_newest_loss_is_kept_without_its_graph_and_nothing_larger():
    one, _, tally = counting()
    weights = torch.ones(3, requires_grad=True)
    assert one.backward_begins(weights.sum())
    assert (tally.loss, tally.loss.requires_grad) == (torch.tensor(3.0), False)
    assert one.backward_begins(weights * 2)
    assert tally.loss is None
    assert not one.backward_begins([weights.sum()])


def test_no_loss_is_kept_where_nobody_reads_it():
    one, counts, tally = counting(keeps_loss=False)
    assert one.backward_begins(torch.tensor(3.0))
    assert (tally.loss, counts.next_begun) == (None, True)


class Refuses(TorchDispatchMode):
    """A mode of a script's."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise RuntimeError(f"no {func} here")


def test_a_loss_that_cannot_be_kept_is_left_to_the_tracker():
    one, counts, _ = counting()
    loss = torch.tensor(1.0)
    with Refuses():
        assert not one.backward_begins(loss)
    assert not counts.next_begun
