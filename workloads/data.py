"""Where batches come from: a loader, or a few real batches replayed from host or device.

Data order is a cursor over the dataset, counted in samples trained on. A new loader starts
at the cursor, so the order survives a change of batch size or of loader workers.
"""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Protocol

import torch
from torch.utils.data import DataLoader, Sampler, default_collate

from workloads.levers import LeverError, Value
from workloads.lifetime import die_with
from workloads.workload import Batch, Samples

CACHED_BATCHES = 4
"""How many real batches data=cached and data=resident replay."""
PREFETCH_FACTOR = 2
"""Batches a loader worker keeps ready: torch's default."""


class Feed(Protocol):
    """An endless supply of batches."""

    def __next__(self) -> Batch:
        """Return the next batch; waits for it."""

    def close(self) -> None:
        """End loader workers and let go of the memory."""


class Consecutive(Sampler[list[int]]):
    """Endless index lists of `batch_size`, in order from `cursor`, wrapping at the end."""

    def __init__(self, size: int, batch_size: int, cursor: int) -> None:
        self._size = size
        self._batch_size = batch_size
        self._cursor = cursor

    def __iter__(self) -> Iterator[list[int]]:
        start = self._cursor
        while True:
            yield [(start + i) % self._size for i in range(self._batch_size)]
            start += self._batch_size


class LoaderFeed:
    """Batches made by loader workers, or by this process where there are none."""

    def __init__(
        self, dataset: Samples, indices: Consecutive, *, num_workers: int, pin_memory: bool
    ) -> None:
        loader: DataLoader[Batch] = DataLoader(
            dataset,
            batch_sampler=indices,
            num_workers=num_workers,
            pin_memory=pin_memory,
            prefetch_factor=PREFETCH_FACTOR if num_workers else None,
            # spawn and forkserver import torch again in every worker: seconds, not 50 ms
            multiprocessing_context="fork" if num_workers else None,
            worker_init_fn=partial(_adopt, os.getpid()),
        )
        self._batches = iter(loader)

    def __next__(self) -> Batch:
        return tuple(next(self._batches))

    def close(self) -> None:
        """End the loader workers; they finish the batch they are making."""
        del self._batches  # the iterator's finalizer is the loader's only way to end early


class ReplayFeed:
    """The same few batches over and over: a ceiling without input cost."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = cycle(batches)

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None:
        """Let go of the batches."""
        self._batches = cycle([])


def make_feed(
    dataset: Samples,
    values: Mapping[str, Value],
    device: torch.device,
    cursor: int,
) -> Feed:
    """Return the feed that the levers ask for, starting at sample `cursor`."""
    batch_size = int(values["batch_size"])
    indices = Consecutive(len(dataset), batch_size, cursor)
    pin_memory = bool(values["pin_memory"]) and device.type == "cuda"
    if values["data"] == "loader":
        return LoaderFeed(
            dataset, indices, num_workers=int(values["num_workers"]), pin_memory=pin_memory
        )
    first_lists = (chosen for chosen, _ in zip(indices, range(CACHED_BATCHES), strict=False))
    batches: list[Batch] = [
        tuple(default_collate([dataset[i] for i in chosen])) for chosen in first_lists
    ]
    if values["data"] == "resident":
        batches = [tuple(t.to(device) for t in batch) for batch in batches]
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # sync: once per new feed, so any stream may read
    elif pin_memory:
        batches = [tuple(t.pin_memory() for t in batch) for batch in batches]
    return ReplayFeed(batches)


def check_host_memory(
    values: Mapping[str, Value], batch_bytes: int, training_bytes: int, available: int
) -> None:
    """Refuse what cannot fit before the system kills for it. All sizes in bytes.

    Raises LeverError with what is needed and what there is.
    """
    held = CACHED_BATCHES
    if values["data"] == "loader":
        held = int(values["num_workers"]) * PREFETCH_FACTOR + 1
    needed = held * batch_bytes + training_bytes
    if needed > available:
        raise LeverError(
            f"batch_size={values['batch_size']}: needs about {needed / 2**30:,.1f} GiB of host "
            f"memory ({held} batches of {batch_bytes / 2**30:,.2f} GiB"
            + (f" and {training_bytes / 2**30:,.1f} GiB to train on one" if training_bytes else "")
            + f"); {available / 2**30:,.1f} GiB are available"
        )


def available_host_bytes() -> int:
    """Return how much memory the host can still give, in bytes."""
    with Path("/proc/meminfo").open(encoding="ascii") as meminfo:
        for line in meminfo:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _adopt(parent_pid: int, _worker_id: int) -> None:
    die_with(parent_pid)
