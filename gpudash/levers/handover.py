"""Replaces an iterator of a DataLoader in the middle of an epoch; batches and order stay the same.

The script's iterator gives the rest of its sampler to another one. It serves what was requested
before, and then the other one's batches. The other one requests nothing before: so nothing that was
prefetched hides its rate. Between two blocks one iterator that is used up may rest with its workers
and take over again later. Persistent workers do not rest: the script may take up their iterator.
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
from torch.utils.data import _utils as private_utils
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from ..instrument.private_torch import has_accelerator
from ..training.commanded import Refusal
from .rehearsal import shortened

Iterator: TypeAlias = _BaseDataLoaderIter
signal_handling: Any = private_utils.signal_handling
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
        self._unprimed: weakref.WeakSet[Iterator] = weakref.WeakSet()
        self._resting: weakref.WeakKeyDictionary[Iterator, Iterator] = weakref.WeakKeyDictionary()
        self._keeps = False

    def keep(self, *, keeps: bool) -> None:
        """Let iterators rest from now on, or end those that do."""
        self._keeps = keeps
        for handle in [] if keeps else list(self._resting):
            self._end_resting(handle)

    def held(self, iterator: Iterator, *, anew: bool) -> int:
        """Count batches that are made, being made (`anew`), or requested from a left iterator."""
        newest, left = iterator, 0
        while (following := self._successors.get(newest)) is not None:
            left += _requested(newest)
            newest = following
        return left + (_requested(newest) if anew else _ready(newest))

    def successor(self, handle: Iterator, old: Iterator, loader: DataLoader[Any]) -> Iterator:
        """Return an iterator without a sampler, new or rested; `handle` is the script's own."""
        if loader.num_workers:
            rested = self._resting.pop(handle, None)
            if rested is not None and _is_like(rested, loader) and _wake(rested):
                return rested
            if rested is not None:
                _shut_down(rested)
        new = _made(loader, loader.num_workers, int(old._base_seed))
        new._index_sampler = old._index_sampler
        return new

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
        self._unprimed.add(new)

    def _next(self, old_ref: Callable[[], Iterator | None]) -> Any:
        """Raise StopIteration at the end, and what the script's own code raises."""
        old = old_ref()
        assert old is not None
        source: Any = old  # torch's annotation says that `_next_data` never returns
        while (following := self._successors.get(source)) is not None and not _requested(source):
            self._successors[old] = following  # releases an iterator between the two
            if following in self._unprimed:  # it is left now
                self._let_rest(old, source)
                self._unprimed.discard(following)
                _prime(following)
            source = following
        try:
            batch = source._next_data()
        except StopIteration:
            self._end_resting(old)
            raise
        old._num_yielded += 1
        return batch

    def _let_rest(self, handle: Iterator, source: Iterator) -> None:
        """Let a used-up iterator's workers rest, in place of another's, or end them."""
        has_workers = isinstance(source, _MultiProcessingDataLoaderIter)
        if self._keeps and has_workers and source is not handle and not source._persistent_workers:
            self._end_resting(handle)
            _unwatch_workers(source)
            self._successors.pop(source, None)  # it may come again behind that one
            self._resting[handle] = source
        else:
            _shut_down(source)

    def _end_resting(self, handle: Iterator) -> None:
        rested = self._resting.pop(handle, None)
        if rested is not None:
            _shut_down(rested)


def _requested(iterator: Any) -> int:
    return len(getattr(iterator, "_task_info", ()))


def _ready(iterator: Any) -> int:
    if not _requested(iterator):
        return 0
    queues = {id(queue): queue for queue in (iterator._worker_result_queue, iterator._data_queue)}
    waiting: int = sum(one.qsize() for one in queues.values())
    out_of_order = sum(len(info) > 1 for info in iterator._task_info.values())
    return min(waiting + out_of_order, _requested(iterator))


def _is_like(iterator: Any, loader: DataLoader[Any]) -> bool:
    of_loader = loader.num_workers, loader.prefetch_factor, loader.pin_memory and has_accelerator()
    pins = iterator._pin_memory
    return (iterator._num_workers, iterator._prefetch_factor, pins) == of_loader


def _unwatch_workers(iterator: Any) -> None:
    """Have torch not raise in the script if a resting worker is killed: it may never be needed."""
    signal_handling._remove_worker_pids(id(iterator))
    iterator._worker_pids_set = False


def _wake(iterator: Any) -> bool:
    """Return False if a worker has ended."""
    if not all(worker.is_alive() for worker in iterator._workers):
        return False
    signal_handling._set_worker_pids(id(iterator), tuple(one.pid for one in iterator._workers))
    iterator._worker_pids_set = True
    return True


def _made(loader: DataLoader[Any], num_workers: int, seed: int) -> Iterator:
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
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        most = iterator._prefetch_factor * iterator._num_workers
        for _ in range(most - len(iterator._task_info)):
            iterator._try_put_index()


def try_out(new: Any, old: Iterator) -> bool:
    """Have a worker make the next batch, which is served. False: none is left. Raises Refusal."""
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
    new._sampler_iter = iter([index])
    new._try_put_index()
    arrived, answer = new._try_get_data(TRIAL_S)
    if not arrived:
        raise Refusal(f"loader workers made no batch in {TRIAL_S:.0f} s")
    if isinstance(answer[1], ExceptionWrapper):
        raise Refusal(shortened(answer[1].exc_msg.strip().splitlines()[-1]))
    return answer[1]


def is_over(iterator: Iterator) -> bool:
    """Return False where it is not known whether the sampler has anything left."""
    rest = iterator._sampler_iter
    if inspect.isgenerator(rest):
        return inspect.getgeneratorstate(rest) == inspect.GEN_CLOSED
    return operator.length_hint(rest, 1) == 0


def _shut_down(iterator: Iterator) -> None:
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        iterator._shutdown_workers()
