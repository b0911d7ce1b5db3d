"""Plain steps that are only counted, one call for each of their events."""

import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpudash.script.counting import Counting, count_backward, count_batches, count_steps
from gpudash.script.step_counts import StepCounts


class Loader:
    """Stands for a DataLoader's iterator."""

    def __init__(self):
        self.batch = None


class Tracker:
    """Notes what is left to the tracker."""

    def __init__(self, *, border_at=0, look_at=float("inf"), due_s=float("inf"), keeps_loss=True):
        self.counting, self.tally, self.loader = Counting(), StepCounts(), Loader()
        self.counting.steps = 10
        self.counting.begin(
            self.tally,
            thread=get_ident(),
            optimizer=0,
            iterator=weakref.ref(self.loader),
            keeps_loss=keeps_loss,
            border_at=border_at,
            look_at=look_at,
            due_s=due_s,
        )
        self.left = []
        self.next = count_batches(self.counting, self.tell, self._advance, self._followed)
        _, self.step_ends = count_steps(self.counting, self.tell)

    def _advance(self, loader):
        if isinstance(loader.batch, Exception):
            raise loader.batch
        return loader.batch

    def _followed(self, loader):
        self.left.append("followed")
        return loader.batch

    def tell(self, event, *about):
        if event != "DataLoader: asked":
            self.left.append((event, about[-1] is not None))
        return True

    def get(self, batch):
        self.loader.batch = batch
        return self.next(self.loader)

    def elsewhere(self, run):
        """What it returns on another thread."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(run).result()


def test_each_wait_for_a_batch_tells_what_of_it_is_on_the_cpu(monkeypatch):
    cpu_s = iter([5.0, 5.25, 7.0, 7.5])
    monkeypatch.setattr(time, "thread_time", lambda: next(cpu_s))
    tracker = Tracker()
    for _ in range(2):
        tracker.get([torch.ones(2)])
    assert (tracker.tally.data_cpu_s, tracker.left) == (0.75, [])


@pytest.mark.parametrize("why", [{"border_at": 11}, {"look_at": 12}, {"due_s": 0.0}])
def test_a_step_that_is_measured_next_is_left_to_the_tracker(why):
    tracker = Tracker(**why)
    tracker.step_ends(None, (), {})
    assert (tracker.counting.steps, tracker.left) == (10, [("optimizer: ends", False)])


@pytest.fixture
def tracker():
    return Tracker()


def test_another_thread_is_left_to_the_tracker(tracker):
    assert not tracker.elsewhere(lambda: count_backward(tracker.counting, torch.tensor(1.0)))
    tracker.elsewhere(lambda: tracker.step_ends(None, (), {}))
    tracker.elsewhere(lambda: tracker.get([torch.ones(2)]))
    assert (tracker.counting.steps, tracker.counting.next_begun) == (10, False)
    assert tracker.left == [("optimizer: ends", False), "followed"]


def test_samples_of_lists_of_tensors_are_counted_and_all_else_is_left_to_the_tracker(tracker):
    tally, began_s = tracker.tally, time.monotonic()
    for batch in ([torch.ones(8, 3), torch.ones(8)], (torch.ones(5),)):
        assert tracker.get(batch) is batch
    assert (tally.batches, tally.fetched, tally.newest, tracker.left) == (2, 13, 5, [])
    assert 0 < tally.data_s <= time.monotonic() - began_s
    others = {"x": torch.ones(8)}, torch.ones(8), [], [torch.tensor(1.0)], ["x"]
    for other in others:
        assert tracker.get(other) is other
    assert tracker.left == [("DataLoader: arrived", True)] * len(others)
    tally.fetched = None  # an earlier batch had no known size
    tracker.get([torch.ones(8)])
    assert (tally.fetched, tally.batches) == (None, 3)


def test_steps_that_were_closed_during_a_wait_do_not_get_it(tracker):
    advance = tracker._advance

    def closes(loader):
        tracker.counting.begin(StepCounts(), thread=get_ident(), iterator=weakref.ref(loader))
        return advance(loader)

    tracker.loader.batch = [torch.ones(2)]
    count_batches(tracker.counting, tracker.tell, closes, tracker._followed)(tracker.loader)
    assert tracker.left == [("DataLoader: arrived", False)]


def test_the_newest_loss_is_kept_without_its_graph_and_nothing_larger(tracker):
    weights = torch.ones(3, requires_grad=True)
    assert count_backward(tracker.counting, weights.sum())
    loss = tracker.tally.loss
    assert (loss, loss.requires_grad) == (torch.tensor(3.0), False)
    assert count_backward(tracker.counting, weights * 2)
    assert tracker.tally.loss is None
    assert not count_backward(tracker.counting, [weights.sum()])
    nobody_reads = Tracker(keeps_loss=False)
    assert count_backward(nobody_reads.counting, torch.tensor(3.0))
    assert (nobody_reads.tally.loss, nobody_reads.counting.next_begun) == (None, True)


class Refuses(TorchDispatchMode):
    """A mode of a script's."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise RuntimeError(f"no {func} here")


def test_a_loss_that_cannot_be_kept_is_left_to_the_tracker(tracker):
    loss = torch.tensor(1.0)
    with Refuses():
        assert not count_backward(tracker.counting, loss)
    assert not tracker.counting.next_begun
