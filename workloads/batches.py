"""Where batches come from: a loader, or a few real batches replayed from host or device.

Data order is a cursor over the dataset, counted in samples trained on. A new loader starts
at the cursor, so the order survives a change of batch size or of loader workers.
"""

import os
import signal
from collections.abc import Iterator, Mapping
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
"""How many real batches data=cached and data=resident replay."""


class InputReport(NamedTuple):
    """What making the samples took and met, since the report before."""

    transform_ms: dict[str, float]
    """Mean milliseconds a sample spent in each transform of a loader worker."""
    skipped: int
    """Unreadable samples passed over."""


class BatchSource(Protocol):
    """An endless supply of batches."""

    def __next__(self) -> Batch:
        """Return the next batch; waits for it."""

    def report(self) -> InputReport:
        """Return what the batches taken since the last call say of their making."""

    def close(self) -> None:
        """End loader workers and let go of the memory."""


class Consecutive(Sampler[list[int]]):
    """Endless index lists of `batch_size`, in order from `cursor`, wrapping at the end.

    Several processes share out the batch that one would make of all their samples.
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
    """Takes the measurements off the batches and sums them up."""

    def __init__(self, transforms: tuple[str, ...]) -> None:
        self._transforms = transforms
        self._begin()

    def take(self, batch: Batch) -> Batch:
        """Return the batch (…, (B, T+1)) without its last tensor, if that is measurements."""
        if not self._transforms:
            return batch
        measured = batch[-1]  # (B, T+1), on the host
        self._samples += len(measured)
        # a sum, not the tensor: it lies in shared memory, whose descriptor stays open with it
        self._sums += measured.sum(dim=0, dtype=torch.float64)
        return batch[:-1]

    def report(self) -> InputReport:
        """Return means and sums over what was taken since the last call."""
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


class LoaderBatches:
    """Batches made by loader workers, or by this process where there are none.

    Raises LeverError where the system has no room for so many workers.
    """

    def __init__(
        self,
        dataset: Samples,
        indices: Consecutive,
        *,
        num_workers: int,
        pin_memory: bool,
        prefetch_factor: int,
    ) -> None:
        self._reports = _Reports(dataset.transforms)
        if num_workers:  # one ended while it makes a directory for its sockets would leave it
            get_temp_dir()
        loader: DataLoader[Batch] = DataLoader(
            dataset,
            batch_sampler=indices,
            collate_fn=dataset.collate,
            num_workers=num_workers,
            pin_memory=pin_memory,
            prefetch_factor=prefetch_factor if num_workers else None,
            # spawn and forkserver import torch again in every worker: seconds, not 50 ms
            multiprocessing_context="fork" if num_workers else None,
            worker_init_fn=partial(_adopt, os.getpid()),
        )
        try:
            self._batches = iter(loader)
        except OSError as error:  # no process or file descriptor left
            for worker in active_children():
                worker.kill()  # one already begun would live on, waiting for work
            raise LeverError(f"num_workers={num_workers}: {error}") from error
        # torch's handler raises wherever this process happens to be when a loader worker dies;
        # without it, the loader itself notices, within seconds, where a batch is asked for
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def __next__(self) -> Batch:
        try:
            return self._reports.take(_as_tuple(next(self._batches)))
        except (ConnectionError, EOFError) as error:
            raise RuntimeError("a DataLoader worker died handing over a batch") from error

    def report(self) -> InputReport:
        """Return what the loader workers measured."""
        return self._reports.report()

    def close(self) -> None:
        """End the loader workers; they finish the batch they are making."""
        del self._batches  # the iterator's finalizer is the loader's only way to end early


class RepeatedBatches:
    """The same few batches over and over: a ceiling without input cost."""

    def __init__(self, batches: list[Batch], reports: _Reports) -> None:
        self._batches = cycle(batches)
        self._reports = reports

    def __next__(self) -> Batch:
        return next(self._batches)

    def report(self) -> InputReport:
        """Return what making the batches took and met, once: none is made any more."""
        return self._reports.report()

    def close(self) -> None:
        """Let go of the batches."""
        self._batches = cycle([])


def make_batches(
    dataset: Samples,
    values: Mapping[str, Value],
    device: torch.device,
    cursor: int,
    processes: Processes = ALONE,
) -> BatchSource:
    """Return the batches that the levers ask for, starting at sample `cursor`."""
    batch_size = int(values["batch_size"])
    indices = Consecutive(len(dataset), batch_size, cursor, processes)
    pin_memory = bool(values["pin_memory"]) and device.type == "cuda"
    if values["data"] == "loader":
        return LoaderBatches(
            dataset,
            indices,
            num_workers=int(values["num_workers"]),
            pin_memory=pin_memory,
            prefetch_factor=int(values["prefetch_factor"]),
        )
    reports = _Reports(dataset.transforms)
    first_lists = (chosen for chosen, _ in zip(indices, range(CACHED_BATCHES), strict=False))
    batches: list[Batch] = [
        reports.take(_as_tuple(dataset.collate([dataset[i] for i in chosen])))
        for chosen in first_lists
    ]
    if values["data"] == "resident":
        batches = [moved(batch, device) for batch in batches]
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # sync: once per new batches, so any stream may read
    elif pin_memory:
        batches = [tree_map(_pinned, batch) for batch in batches]
    return RepeatedBatches(batches, reports)


def batches_held(values: Mapping[str, Value]) -> int:
    """Return how many batches the host holds at a time."""
    if values["data"] == "loader":
        return int(values["num_workers"]) * int(values["prefetch_factor"]) + 1
    return CACHED_BATCHES


def moved(batch: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """Return the batch with all of it on the device that can be there."""

    def move(leaf: Any) -> Any:
        return leaf.to(device, non_blocking=non_blocking) if hasattr(leaf, "to") else leaf

    return tree_map(move, batch)


def _pinned(leaf: Any) -> Any:
    return leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf


def _as_tuple(batch: Any) -> Any:
    """Return a tuple for the list that the loader makes of one."""
    return tuple(batch) if isinstance(batch, list) else batch


def _adopt(parent_pid: int, _worker_id: int) -> None:
    die_with(parent_pid)
