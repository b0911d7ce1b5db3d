"""Loader workers hand batches over in shared memory, which a container has little of."""

import os
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpudash.levers.training_objects import Feed
from gpudash.script.discovery import found_line
from tests.script.levers.scripts import found, levers, offered, refuses

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _machine(monkeypatch):
    """64 MiB of shared memory, as in a container, and 4 cores."""
    size = SimpleNamespace(f_blocks=64, f_frsize=MIB)
    monkeypatch.setattr(os, "statvfs", lambda _: size)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})


def training(batch_mib, **options):
    loader = DataLoader(TensorDataset(torch.randn(64, 1)), 4, **options)
    facts = found(loader=loader, iterator=iter(loader))
    return facts._replace(feed=Feed(loader, iter(loader), batch_mib * MIB)), loader


def on(facts):
    moved = levers()
    moved.update(facts)
    return moved


def most(facts, name):
    return offered(on(facts))[name].maximum


@pytest.mark.parametrize(
    ("batch_mib", "own", "workers", "ahead"),
    [
        (0, {}, 256, 256),
        (1, {}, 31, 63),
        (12, {}, 2, 4),
        (20, {"num_workers": 3, "prefetch_factor": 2}, 3, 2),  # the script's own stay possible
    ],
)
def test_no_more_workers_and_batches_ahead_are_offered_than_fit(batch_mib, own, workers, ahead):
    facts, _ = training(batch_mib, **own)
    assert (most(facts, "num_workers"), most(facts, "prefetch_factor")) == (workers, ahead)


ALIVE = {"num_workers": 1, "persistent_workers": True}
BOTH = "persistent_workers=True needs loader workers, /dev/shm has no room for more batches"
REFUSED = {
    "more workers than fit": (
        {"batch_mib": 12},
        r"from 0 to 2 \(/dev/shm has no room for more batches\)",
        {"num_workers": "4"},
    ),
    "each fits by itself": (
        {"batch_mib": 4},
        "/dev/shm is too small for 50 batches: 16 fit",
        {"num_workers": "7", "prefetch_factor": "7"},
    ),
    "neither less nor more": (
        {"batch_mib": 12, **ALIVE},
        rf"from 1 to 2 \({BOTH}\)",
        {"num_workers": "0"},
    ),
    "the batches of a worker do not fit": (
        {"batch_mib": 40},
        "/dev/shm is too small for the batches of a worker",
        {"num_workers": "1"},
    ),
}


@pytest.mark.parametrize(("begun", "why", "changes"), REFUSED.values(), ids=REFUSED)
def test_a_move_is_refused_before_a_worker_dies_of_a_bus_error(begun, why, changes):
    facts, loader = training(**begun)
    before = loader.num_workers
    refuses(on(facts), why, **changes)
    assert loader.num_workers == before


def test_shared_memory_without_a_limit_holds_everything(monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_blocks=0, f_frsize=4096))
    facts, _ = training(40)
    assert most(facts, "num_workers") == 256


@pytest.mark.parametrize(
    ("batch_mib", "workers", "said"),
    [
        (0, 2, "DataLoader with 2 workers"),
        (1, 2, "DataLoader with 2 workers"),
        (12, 1, "DataLoader with 1 worker (/dev/shm has room for the batches of 2)"),
        (
            12,
            4,
            "DataLoader with 4 workers (/dev/shm is too small for their 9 batches: 5 fit)",
        ),
    ],
)
def test_the_line_at_the_bottom_says_so(batch_mib, workers, said):
    facts, loader = training(batch_mib)
    loader.num_workers = workers
    assert found_line(facts).endswith(said)


def test_where_nothing_is_known_of_shared_memory_nothing_is_said(monkeypatch):
    monkeypatch.setattr(os, "statvfs", Mock(side_effect=FileNotFoundError))
    facts, _ = training(12)
    assert most(facts, "num_workers") == 256
    assert found_line(facts).endswith("DataLoader with 0 workers")
