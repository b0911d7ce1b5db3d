"""Between two blocks a loader rests with its workers, and takes over again."""

import gc
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.resting_loaders import (
    MORE,
    in_blocks_of,
    pids,
    test_a_resting_worker_that_is_killed_harms_nothing_and_is_replaced,
    test_no_worker_is_left_at_the_end,
    test_none_rests_once_the_blocks_have_ended,
    test_two_loaders_are_kept_at_most,
    test_workers_rest_and_take_over_again,
)
from tests.script.levers.scripts import begun, block, levers, loader
from tests.script.levers.test_loader import LOADERS
from tests.waiting import until
from tests.warm import python

__all__ = [
    "test_a_resting_worker_that_is_killed_harms_nothing_and_is_replaced",
    "test_no_worker_is_left_at_the_end",
    "test_none_rests_once_the_blocks_have_ended",
    "test_two_loaders_are_kept_at_most",
    "test_workers_rest_and_take_over_again",
]


SINGLE = {"num_workers": 1, "batch_size": 1}


def take(iterator, batches=MORE):
    """Take so many batches of the 48."""
    return [next(iterator)[0] for _ in range(batches)]


class Feed:
    """A script's loader, of which a sample is a batch."""

    started_anew = 1  # the script's own loader does not rest

    def __init__(self, redirects):
        self.data, self.iterator, self.moved = begun(redirects, **SINGLE)
        self.taken = 0

    def block(self, workers):
        block(self.moved, num_workers=workers)

    def take(self):
        assert [one.item() for one in take(self.iterator)] == [
            *range(self.taken, self.taken + MORE)
        ]
        self.taken += MORE

    def blocks_end(self):
        self.moved.begins(in_blocks=False, anew=False)

    def leave(self):
        self.iterator = None
        gc.collect()


@pytest.fixture
def feed(redirects):
    feed = Feed(redirects)
    yield feed
    feed.leave()


@pytest.mark.parametrize(
    "kind", ["shuffled by the script's own numbers", "shuffled by a generator", "own batches"]
)
def test_each_sample_is_trained_on_once_and_in_its_order_however_often_blocks_switch(
    redirects, kind
):
    def read(switches):
        torch.manual_seed(1)
        data = loader(**{"num_workers": 1, **LOADERS[kind]()})
        batches, moved, waiting = [], None, list(switches)
        for _ in range(2):
            iterator = iter(data)
            for at, (indices, _) in enumerate(iterator, 1):
                batches.append(torch.as_tensor(indices).tolist())
                moved = moved or levers(redirects=redirects, loader=data, iterator=iterator)
                if waiting and at % 3 == 0:
                    block(moved, num_workers=waiting.pop(0))
            del iterator
        return batches, torch.rand(3).tolist()

    assert read("2120") == read("")


@pytest.mark.parametrize("how", ["the epoch ends", "restore"])
def test_nothing_rests_any_longer_than_blocks_and_the_epoch(feed, how):
    in_blocks_of(feed, "21")
    if how == "the epoch ends":
        assert len(list(feed.iterator)) == 48 - 2 * MORE
    else:
        feed.moved.restore()
    assert len(pids()) == (how == "restore")


def test_persistent_workers_do_not_rest(redirects):
    data, iterator, moved = begun(redirects, **SINGLE, persistent_workers=True)
    for workers in "212":
        block(moved, num_workers=workers)
        take(iterator)
    assert len(pids()) == 2
    assert len(list(iterator)) == 48 - 3 * 7
    assert len(list(data)) == 48
    del data, iterator


class _Random(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.rand(()).item(), index


def test_workers_that_rested_go_on_with_their_random_numbers(redirects):
    _data, iterator, moved = begun(redirects, DataLoader(_Random(), num_workers=1))
    drawn = []
    for workers in "21212":
        block(moved, num_workers=workers)
        drawn += [drawn.item() for drawn in take(iterator, 6)]
    assert len(set(drawn)) == len(drawn)
    del iterator


CRASHES = """
import weakref
import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter
from tests.script.levers.scripts import block, levers, loader
own, redirects = _BaseDataLoaderIter.__next__, weakref.WeakKeyDictionary()
_BaseDataLoaderIter.__next__ = lambda it: redirects[it]() if it in redirects else own(it)
data = loader(num_workers=1, batch_size=1)
iterator = iter(data)
moved = levers(redirects=redirects, loader=data, iterator=iterator)
for workers in "2131":
    block(moved, num_workers=workers)
    for _ in range(7):
        next(iterator)
import multiprocessing, sys
with open(sys.argv[1], "w") as file:
    print(*(child.pid for child in multiprocessing.active_children()), file=file)
raise SystemExit("it crashes")
"""


@pytest.mark.usefixtures("shared_memory")
def test_no_worker_outlives_a_training_that_crashes(tmp_path):
    with pytest.raises(AssertionError, match="it crashes"):
        python("-c", CRASHES, str(tmp_path / "workers"))
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 3 + 1
    until(lambda: not any(Path("/proc", pid).exists() for pid in workers))


# ── what is not measured ────────────────────────────────────────────────────────────────


def test_what_was_asked_for_before_a_switch_is_warm_up(redirects):
    _data, iterator, moved = begun(redirects, num_workers=2)
    assert (moved.warmup_steps, moved.burst_steps) == (2 + 4, 2)
    block(moved, num_workers="3", prefetch_factor="1")
    assert (moved.warmup_steps, moved.burst_steps) == (2 + 4, 3)
    block(moved, num_workers="0")  # the second loader was asked for nothing yet
    assert (moved.warmup_steps, moved.burst_steps) == (2 + 4, 1)
    take(iterator)
    assert block(moved).warmup_steps == 2
    list(iterator)


def test_what_is_made_already_is_warm_up_also_without_a_switch(redirects):
    _data, iterator, moved = begun(redirects, num_workers=1, prefetch_factor=3)
    until(lambda: block(moved).warmup_steps == 2 + 3)
    moved.begins(in_blocks=True, anew=True)
    assert moved.warmup_steps == 2 + 3
    list(iterator)
