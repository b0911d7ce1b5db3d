"""The sources of batches: a loader, or a few real batches replayed from host or device.

The data order is a cursor over the dataset, in samples trained on. A new loader starts at the
cursor, so the order survives a change of batch size or of loader workers.

A change of how batches are made, and not of what is in them, may keep two loaders: one is active,
one rests with its workers and holds no batch. The one that is left serves what it was asked for;
then the other one is asked for the next batch in order.
"""

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import cycle
from multiprocessing import active_children
from multiprocessing.util import get_temp_dir
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Sampler

from workloads.levers import LeverError, Value
from workloads.lifetime import die_with
from workloads.processes import ALONE, Processes
from workloads.workload import Batch, Samples

CACHED_BATCHES = 4
"""Number of real batches that data=cached and data=resident replay."""


class InputReport(NamedTuple):
    """Times and skipped samples since the previous report."""

    transform_ms: dict[str, float]
    """Mean milliseconds per sample in each transform of a loader worker."""
    skipped: int
    """Number of unreadable samples skipped."""


class BatchSource(Protocol):
    """An endless supply of batches."""

    def __next__(self) -> Batch:
        """Wait for the next batch and return it."""

    def report(self) -> InputReport:
        """Return times and skipped samples of the batches since the last call."""

    def close(self) -> None:
        """End loader workers and free the memory."""


class Consecutive(Sampler[list[int]]):
    """Endless index lists of `batch_size`, in order from `cursor`, wrapping at the end.

    With several processes, each takes its part of a common batch.
    """

    def __init__(
        self, size: int, batch_size: int, cursor: int, processes: Processes = ALONE
    ) -> None:
        self._size = size
        self._batch_size = batch_size
        self._cursor = cursor + processes.rank * batch_size
        self._stride = processes.count * batch_size

    def __iter__(self) -> Iterator[list[int]]:
        start = self._cursor
        while True:
            yield [(start + i) % self._size for i in range(self._batch_size)]
            start += self._stride


class _Reports:
    """Removes the measurements from the batches, and adds them up."""

    def __init__(self, transforms: tuple[str, ...]) -> None:
        self._transforms = transforms
        self._begin()

    def take(self, batch: Batch) -> Batch:
        """Return the batch (…, (B, T+1)) without its last tensor, if that has measurements."""
        if not self._transforms:
            return batch
        measured = batch[-1]  # (B, T+1), on the host
        self._samples += len(measured)
        # the tensor is not kept: it is in shared memory, which keeps a descriptor open
        self._sums += measured.sum(dim=0, dtype=torch.float64)
        return batch[:-1]

    def report(self) -> InputReport:
        """Return means and sums over the batches since the last call."""
        if not self._samples:
            return InputReport({}, 0)
        *sums_ms, skipped = self._sums.tolist()
        means_ms = [sum_ms / self._samples for sum_ms in sums_ms]
        self._begin()
        return InputReport(
            transform_ms=dict(zip(self._transforms, means_ms, strict=True)), skipped=int(skipped)
        )

    def _begin(self) -> None:
        self._samples = 0
        self._sums = torch.zeros(len(self._transforms) + 1, dtype=torch.float64)


class LoaderSettings(NamedTuple):
    """How a loader makes its batches; what is in them depends on none of these."""

    num_workers: int
    prefetch_factor: int
    pin_memory: bool

    @classmethod
    def of(cls, values: Mapping[str, Value], device: torch.device) -> "LoaderSettings":
        """Return those that these levers set on this device."""
        return cls(
            num_workers=int(values["num_workers"]),
            prefetch_factor=int(values["prefetch_factor"]),
            pin_memory=bool(values["pin_memory"]) and device.type == "cuda",
        )


class _Turn(Sampler[list[int]]):
    """What one of several loaders asks for, of an order that they share."""

    def __init__(self, order: Iterator[list[int]]) -> None:
        self._order = order
        self.is_on = False
        self.asked = 0

    def __iter__(self) -> Iterator[list[int]]:
        while self.is_on:
            self.asked += 1
            yield next(self._order)


class _Loader:
    """A loader with its workers, asked for no batch until `begin`, which may come again.

    Raises LeverError if the system cannot start so many workers.
    """

    def __init__(
        self, dataset: Samples, order: Iterator[list[int]], settings: LoaderSettings
    ) -> None:
        self.settings = settings
        self._turn = _Turn(order)
        self._served = 0
        num_workers, before = settings.num_workers, active_children()
        if num_workers:  # else a killed worker could leave its temporary directory behind
            get_temp_dir()
        self._loader: DataLoader[Batch] = DataLoader(
            dataset,
            batch_sampler=self._turn,
            collate_fn=dataset.collate,
            num_workers=num_workers,
            pin_memory=settings.pin_memory,
            prefetch_factor=settings.prefetch_factor if num_workers else None,
            persistent_workers=num_workers > 0,
            # spawn and forkserver import torch again in every worker, which takes seconds
            multiprocessing_context="fork" if num_workers else None,
            worker_init_fn=partial(_adopt, os.getpid()),
        )
        self._batches: Iterator[Batch] = iter(())
        try:
            if num_workers:
                self._batches = iter(self._loader)
        except OSError as error:  # no process or file descriptor left
            for worker in {*active_children()} - {*before}:
                worker.kill()  # those already started would wait for work forever
            raise LeverError(f"num_workers={num_workers}: {error}") from error
        self._workers = {*active_children()} - {*before}
        # torch's handler raises at any point of this process when a loader worker dies; without it
        # the loader notices within seconds, when the next batch is taken
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    @property
    def held(self) -> int:
        """How many batches it was asked for and has not served."""
        return self._turn.asked - self._served

    @property
    def can_rest(self) -> bool:
        """Whether it has workers, and all of them are there."""
        return bool(self._workers) and all(one.is_alive() for one in self._workers)

    def begin(self) -> None:
        """Ask for batches from now on; none may be held."""
        self._turn.is_on = True
        self._batches = iter(self._loader)

    def leave(self) -> None:
        """Ask for no further batch."""
        self._turn.is_on = False

    def __next__(self) -> Batch:
        try:
            batch: Batch = _as_tuple(next(self._batches))
        except (ConnectionError, EOFError) as error:
            raise RuntimeError("a DataLoader worker died handing over a batch") from error
        self._served += 1
        return batch

    def close(self) -> None:
        """End the workers; they finish their present batch."""
        del self._batches, self._loader  # only the iterator's finalizer ends workers early


class LoaderBatches:
    """Batches made by loader workers, or by this process without workers.

    Raises LeverError if the system cannot start so many workers.
    """

    def __init__(
        self, dataset: Samples, indices: Iterable[list[int]], settings: LoaderSettings
    ) -> None:
        self._dataset, self._order = dataset, iter(indices)
        self._reports = _Reports(dataset.transforms)
        self._active = _Loader(dataset, self._order, settings)
        self._next: _Loader | None = None  # comes once what the active one holds is served
        self._resting: _Loader | None = None
        self._keeps = False
        self._active.begin()

    @property
    def left(self) -> int | None:
        """How many batches come from a loader that is left, before others do; None: none is."""
        return None if self._next is None else self._active.held

    def keep(self, *, keeps: bool) -> None:
        """Let a loader that is left rest from now on, or end the one that does."""
        self._keeps = keeps
        if not keeps:
            self._let_rest(None)

    def move(self, settings: LoaderSettings) -> None:
        """Have batches made like this once those that were asked for are served."""
        if self._next not in (None, self._active):  # it never began
            self._let_rest(self._next)
        self._active.leave()
        if settings == self._active.settings:
            self._next = self._active
            return
        resting, self._next = self._resting, None
        if resting is not None and resting.settings == settings and resting.can_rest:
            self._resting, self._next = None, resting
        else:
            self._let_rest(None)
            self._next = _Loader(self._dataset, self._order, settings)

    def __next__(self) -> Batch:
        if self._next is not None and not self._active.held:
            self._turn_over(self._next)
        return self._reports.take(next(self._active))

    def report(self) -> InputReport:
        """Return the loader workers' measurements."""
        return self._reports.report()

    def close(self) -> None:
        """End the loader workers; they finish their present batch."""
        for one in {self._active, self._next, self._resting}:
            if one is not None:
                one.close()

    def _turn_over(self, following: _Loader) -> None:
        left, self._active, self._next = self._active, following, None
        if left is not following:
            self._let_rest(left if self._keeps and left.can_rest else None)
            if self._resting is not left:
                left.close()
        following.begin()

    def _let_rest(self, loader: _Loader | None) -> None:
        """Let this one rest, in place of another."""
        if self._resting is not None:
            self._resting.close()
        self._resting = loader


class RepeatedBatches:
    """The same few batches over and over, which shows the rate without input cost."""

    def __init__(self, batches: list[Batch], reports: _Reports) -> None:
        self._batches = cycle(batches)
        self._reports = reports

    def __next__(self) -> Batch:
        return next(self._batches)

    def report(self) -> InputReport:
        """Return the measurements of the batches once, as no further batch is made."""
        return self._reports.report()

    def close(self) -> None:
        """Free the batches."""
        self._batches = cycle([])


def make_batches(
    dataset: Samples,
    values: Mapping[str, Value],
    device: torch.device,
    cursor: int,
    processes: Processes = ALONE,
) -> BatchSource:
    """Return the batch source for these levers, starting at sample `cursor`."""
    batch_size = int(values["batch_size"])
    indices = Consecutive(len(dataset), batch_size, cursor, processes)
    settings = LoaderSettings.of(values, device)
    if values["data"] == "loader":
        return LoaderBatches(dataset, indices, settings)
    reports = _Reports(dataset.transforms)
    first_lists = (chosen for chosen, _ in zip(indices, range(CACHED_BATCHES), strict=False))
    batches: list[Batch] = [
        reports.take(_as_tuple(dataset.collate([dataset[i] for i in chosen])))
        for chosen in first_lists
    ]
    if values["data"] == "resident":
        batches = [moved(batch, device) for batch in batches]
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # sync: once per source, so that any stream may read
    elif settings.pin_memory:
        batches = [tree_map(_pinned, batch) for batch in batches]
    return RepeatedBatches(batches, reports)


def batches_held(values: Mapping[str, Value]) -> int:
    """Return the number of batches that the host holds at a time."""
    if values["data"] == "loader":
        return int(values["num_workers"]) * int(values["prefetch_factor"]) + 1
    return CACHED_BATCHES


def moved(batch: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """Return the batch with all of its tensors on the device."""

    def move(leaf: Any) -> Any:
        return leaf.to(device, non_blocking=non_blocking) if hasattr(leaf, "to") else leaf

    return tree_map(move, batch)


def _pinned(leaf: Any) -> Any:
    return leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf


def _as_tuple(batch: Any) -> Any:
    """Return a batch as a tuple if it is a list, which the loader makes of tuples."""
    return tuple(batch) if isinstance(batch, list) else batch


def _adopt(parent_pid: int, _worker_id: int) -> None:
    die_with(parent_pid)
