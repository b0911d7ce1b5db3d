"""Replaces an iterator of a DataLoader in the middle of an epoch.

The iterator that the script holds gives the rest of its sampler to a new one. It serves what it has
prefetched, and then the new one's batches. Batches and their order stay the same.
"""
# ruff: noqa: SLF001  # PyTorch has no public access to an iterator's sampler

import functools
import inspect
import itertools
import operator
import weakref
from collections.abc import Callable, MutableMapping
from typing import Any, TypeAlias

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from ..instrument.private_torch import has_accelerator
from ..training.levers import Refusal
from .rehearsal import shortened

Iterator: TypeAlias = _BaseDataLoaderIter
Redirects: TypeAlias = MutableMapping[Any, Callable[[], Any]]

TRIAL_S = 10.0
"""Seconds that a dataset new to loader workers may take for its first batch there."""
BETWEEN = "loader workers are tried out on the epoch's next batch, and here is none: ask again"


class Handovers:
    """Knows which iterator makes the rest of another one's batches."""

    def __init__(self, redirects: Redirects) -> None:
        self._redirects = redirects
        self._successors: weakref.WeakKeyDictionary[Iterator, Iterator] = (
            weakref.WeakKeyDictionary()
        )
        self._unprimed: Iterator | None = None

    def newest(self, iterator: Iterator) -> Iterator:
        """Return the iterator that has the rest of this one's sampler."""
        while (following := self._successors.get(iterator)) is not None:
            iterator = following
        return iterator

    def hand_over(self, old: Iterator, new: Iterator) -> None:
        """Give the rest of `old`'s sampler to `new`; `old` then serves the batches of both."""
        new._sampler_iter, old._sampler_iter = old._sampler_iter, iter(())
        self._successors[old] = new
        # weak: only the script decides how long its iterator lives
        self._redirects[old] = functools.partial(self._next, weakref.ref(old))
        self._unprimed = new

    def _next(self, old_ref: Callable[[], Iterator | None]) -> Any:
        """Return the next batch. Raises StopIteration, and what the script's own code raises."""
        if self._unprimed is not None:  # not between steps: a sampler may raise
            new, self._unprimed = self._unprimed, None
            _prime(new)
        old = old_ref()
        assert old is not None
        source: Any = old  # torch's annotation says that `_next_data` never returns
        while source is not None:
            try:
                batch = source._next_data()
            except StopIteration:  # noqa: PERF203  # costs nothing beside a batch
                following = self._successors.get(source)
                if following is not None:
                    _shut_down(source)
                    self._successors[old] = following  # releases an iterator between the two
                source = following
            else:
                old._num_yielded += 1
                return batch
        raise StopIteration


def successor(old: Iterator, loader: DataLoader[Any]) -> Iterator:
    """Return a new iterator with the loader's settings, and no sampler yet."""
    new = _made(loader, loader.num_workers, int(old._base_seed))
    new._index_sampler = old._index_sampler
    return new


def _made(loader: DataLoader[Any], num_workers: int, seed: int) -> Iterator:
    """Return a new iterator of the loader over an empty sampler."""
    stand_in: DataLoader[Any] = object.__new__(DataLoader)
    vars(stand_in).update(vars(loader))
    sampler = "sampler" if loader.batch_sampler is None else "batch_sampler"
    vars(stand_in)[sampler] = ()
    vars(stand_in)["num_workers"] = num_workers
    vars(stand_in)["pin_memory"] = loader.pin_memory and has_accelerator()
    # making an iterator draws a seed for its workers
    vars(stand_in)["generator"] = torch.Generator().manual_seed(seed)
    kind = _MultiProcessingDataLoaderIter if num_workers else _SingleProcessDataLoaderIter
    made: Iterator = kind(stand_in)
    return made


def _prime(iterator: Iterator) -> None:
    """Request the first batches from the workers."""
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        most = iterator._prefetch_factor * iterator._num_workers
        for _ in range(most - len(iterator._task_info)):
            iterator._try_put_index()


def try_out(new: Any, old: Iterator) -> bool:
    """Have a worker make the next batch, as a trial; that batch is served. Raises Refusal.

    Return False if no batch is left.
    """
    try:
        index = next(old._sampler_iter)
    except StopIteration:
        _shut_down(new)
        return False
    try:
        batch = _first_batch(new, index)
    except BaseException:
        _shut_down(new)
        old._sampler_iter = itertools.chain([index], old._sampler_iter)
        raise
    new._tasks_outstanding -= 1
    new._task_info[0] += (batch,)  # as torch keeps a batch that arrives early
    return True


def try_out_between(loader: DataLoader[Any]) -> None:
    """Have a worker make one batch that is dropped, between two epochs. Raises Refusal."""
    batches = loader.batch_sampler
    samplers = (loader.sampler,) if batches is None else (batches, getattr(batches, "sampler", 0))
    if not all(type(one).__module__.startswith("torch.utils.data.") for one in samplers):
        raise Refusal(BETWEEN)  # the script's own sampler may not have an item 0
    new = _made(loader, 1, 0)
    try:
        _first_batch(new, 0 if batches is None else [0])
    finally:
        _shut_down(new)


def _first_batch(new: Any, index: Any) -> Any:
    """Return the batch that a worker of a new iterator makes of an index. Raises Refusal."""
    new._sampler_iter = iter([index])
    new._try_put_index()
    arrived, answer = new._try_get_data(TRIAL_S)
    if not arrived:
        raise Refusal(f"loader workers made no batch in {TRIAL_S:.0f} s")
    if isinstance(answer[1], ExceptionWrapper):
        raise Refusal(shortened(answer[1].exc_msg.strip().splitlines()[-1]))
    return answer[1]


def is_over(iterator: Iterator) -> bool:
    """Return whether the sampler has nothing left; False if that is not known."""
    rest = iterator._sampler_iter
    if inspect.isgenerator(rest):
        return inspect.getgeneratorstate(rest) == inspect.GEN_CLOSED
    return operator.length_hint(rest, 1) == 0


def _shut_down(iterator: Iterator) -> None:
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        iterator._shutdown_workers()
