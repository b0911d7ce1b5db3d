"""The processes that DataLoaders have started, as the training names them."""

import os
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from gpudash.instrument import loader_workers, patching
from tests.warm import START

ROWS = 8


class Makers(Dataset[int]):
    """Each sample is the process that made it."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, _index: int) -> int:
        return os.getpid()


@pytest.fixture(autouse=True)
def hooked() -> Iterator[None]:
    loader_workers.hook()
    yield
    patching.undo()


def made(batches: Iterator[torch.Tensor]) -> set[int]:
    """Return who made the batches that are left."""
    return {int(pid) for batch in batches for pid in batch}


def named(loader: "DataLoader[int]") -> tuple[set[int], set[int]]:
    """Return the processes that are named during an epoch, and who has made its batches."""
    batches = iter(loader)
    return {*loader_workers.pids()}, made(batches)


@pytest.mark.parametrize("context", ["fork", START], ids=["forked", "by a server"])
def test_those_that_make_batches_are_named_until_the_epoch_ends(context: object):
    names, makers = named(DataLoader(Makers(), 2, num_workers=2, multiprocessing_context=context))
    assert len(names) == 2
    assert names == makers
    assert loader_workers.pids() == ()


def test_each_epoch_has_its_own():
    loader = DataLoader(Makers(), num_workers=1)
    (first, _), (second, makers) = named(loader), named(loader)
    assert first != second == makers


def test_those_that_stay_are_named_also_between_epochs():
    loader = DataLoader(Makers(), num_workers=1, persistent_workers=True)
    first, _ = named(loader)
    assert {*loader_workers.pids()} == first
    assert named(loader) == (first, first)
    del loader
    assert loader_workers.pids() == ()


def test_those_of_an_evaluation_are_named_beside_the_trainings():
    training = iter(DataLoader(Makers(), num_workers=2))
    own = {*loader_workers.pids()}
    names, makers = named(DataLoader(Makers(), num_workers=1))
    assert names == own | makers
    assert {*loader_workers.pids()} == own == made(training)


def test_a_loader_without_workers_has_none():
    assert named(DataLoader(Makers())) == (set(), {os.getpid()})


def test_those_of_a_loader_that_was_open_before_are_named_too():
    patching.undo()
    batches = iter(DataLoader(Makers(), num_workers=1))
    loader_workers.hook()
    assert {*loader_workers.pids()} == made(batches)
    assert loader_workers.pids() == ()


def test_once_undone_nothing_more_is_named():
    patching.undo()
    assert named(DataLoader(Makers(), num_workers=1))[0] == set()
