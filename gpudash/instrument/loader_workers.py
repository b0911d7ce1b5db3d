"""Knows the processes of this training that a DataLoader has started.

Torch watches them, to notice when one dies. It begins as soon as they have started, and ends
before it has them end.
"""

import gc
import multiprocessing
from itertools import chain
from typing import Any

from torch.utils.data import _utils as private_utils
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from . import patching
from .guard import unseen

_watched: dict[int, tuple[int, ...]] = {}  # by the iterator's id


def hook() -> None:
    signal_handling: Any = private_utils.signal_handling
    watch, forget = signal_handling._set_worker_pids, signal_handling._remove_worker_pids  # noqa: SLF001  # no public name

    def watched(iterator: int, pids: tuple[int, ...]) -> None:
        with unseen:
            watch(iterator, pids)
            _watched[iterator] = pids

    def forgotten(iterator: int) -> None:
        with unseen:
            forget(iterator)
            _watched.pop(iterator, None)

    patching.replace(signal_handling, "_set_worker_pids", watched)
    patching.replace(signal_handling, "_remove_worker_pids", forgotten)
    if multiprocessing.active_children():  # in a notebook a loader may be open already
        _watched.update(_open())


def _open() -> dict[int, tuple[int, ...]]:
    iterators: list[Any] = [
        one for one in gc.get_objects() if type(one) is _MultiProcessingDataLoaderIter
    ]
    return {
        id(one): tuple(worker.pid for worker in one._workers)  # noqa: SLF001  # no public name
        for one in iterators
        if one._worker_pids_set  # noqa: SLF001  # as above
    }


def pids() -> tuple[int, ...]:
    """Return the ids that the processes have here, in this container."""
    return tuple(chain.from_iterable(list(_watched.values())))
