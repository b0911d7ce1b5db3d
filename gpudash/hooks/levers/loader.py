"""The DataLoader's workers, prefetching and pinning, also in the middle of an epoch.

In mid-epoch the iterator that the script holds gives the rest of its sampler to a new one, serves
what it has prefetched, and then answers with the new one's batches: the same batches in the same
order. The new iterator's seed is drawn from the old one's, so that the script's random numbers are
as they would have been.

Limits: a dataset that draws random numbers draws others in a worker than in the training process,
as it does with another `num_workers` from the start. A sampler that draws from the script's own
random numbers batch by batch draws them earlier where more batches are prefetched. A dataset that
was in no loader worker before is tried out there with one batch; what fails later fails as with
the same `num_workers` in the script.
"""

import inspect
import itertools
import operator
import os
import warnings
import weakref
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from gpudash.hooks.found import Feed, Found
from gpudash.hooks.levers.offers import UNKNOWN, Option, Refusal, absent, on_off
from gpudash.hooks.levers.rehearsal import reason, shortened
from gpudash.protocol import LeverKind, LeverOffer, Settings

Iterator: TypeAlias = _BaseDataLoaderIter
Redirects: TypeAlias = MutableMapping[Any, Callable[[], Any]]

SUMMARIES: dict[str, tuple[LeverKind, str]] = {
    "num_workers": (
        "count",
        "Loader processes that make batches; helps while the step waits for data and cores are "
        "free. 0 loads in the training process.",
    ),
    "prefetch_factor": (
        "count",
        "Batches that each loader worker keeps ready; helps where the time to make a batch varies, "
        "and costs host memory.",
    ),
    "pin_memory": (
        "switch",
        "Put batches into page-locked memory, so that the copy to the GPU runs beside the host, "
        "where the script copies with non_blocking=True.",
    ),
}
SOURCE = "torch.utils.data.DataLoader"
MOST = 256
TRIAL_S = 10.0
"""How long a dataset that was never in a loader worker may take for its first batch there."""
BETWEEN = "loader workers are tried out on the epoch's next batch, and here is none"


class _Way(NamedTuple):
    """How batches are made."""

    num_workers: int
    prefetch_factor: int
    """Latent without workers."""
    pin_memory: bool

    @classmethod
    def of(cls, loader: DataLoader[Any]) -> "_Way":
        factor = loader.prefetch_factor
        return cls(loader.num_workers, 2 if factor is None else factor, bool(loader.pin_memory))

    @classmethod
    def named(cls, settings: Settings) -> "_Way":
        workers, factor = int(settings["num_workers"]), int(settings["prefetch_factor"])
        return cls(workers, factor, settings["pin_memory"] == "on")

    def give(self, loader: DataLoader[Any]) -> None:
        """Let a loader make its batches that way."""
        if self.num_workers > len(os.sched_getaffinity(0)):  # else the next epoch's begin would tell the script
            warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader.num_workers = self.num_workers
        loader.prefetch_factor = self.prefetch_factor if self.num_workers else None
        loader.pin_memory = self.pin_memory

    @property
    def settings(self) -> Settings:
        return {
            "num_workers": str(self.num_workers),
            "prefetch_factor": str(self.prefetch_factor),
            "pin_memory": on_off(self.pin_memory),
        }

    @property
    def held(self) -> int:
        """How many batches are in flight."""
        return self.num_workers * self.prefetch_factor + 1 if self.num_workers else 0


class LoaderWay:
    """The levers `num_workers`, `prefetch_factor` and `pin_memory`."""

    def __init__(self, redirects: Redirects) -> None:
        self._redirects = redirects
        self._feed: Feed | None = None
        self._own: _Way | None = None
        self._way: _Way | None = None
        self._tried = False  # whether workers have been seen to make batches of this dataset

    def update(self, found: Found) -> None:
        """See Family."""
        before, loader = self._loader(), found.feed.loader() if found.feed else None
        if loader is None or loader is not before:
            if before is not None and self._own is not None:
                self._own.give(before)  # the script is done with it, or comes back to it
            self._own = self._way = _Way.of(loader) if loader is not None else None
            self._tried = loader is not None and loader.num_workers > 0
        self._feed = found.feed
        self._device = found.device

    @property
    def options(self) -> tuple[Option, ...]:
        """See Family."""
        return tuple(self._option(name) for name in SUMMARIES)

    @property
    def settings(self) -> Settings:
        """See Family."""
        values = {option.offer.name: option.offer.default for option in self.options}
        return self._way.settings if self._way else values

    @property
    def held_batches(self) -> int:
        """How many batches are in flight."""
        return self._way.held if self._way else 0

    @property
    def num_workers(self) -> int:
        """How many processes make batches."""
        return self._way.num_workers if self._way else 0

    def apply(self, wanted: Settings) -> None:
        """See Family."""
        loader = self._loader()
        if loader is None or self._way is None or self._own is None:
            return
        before, way = self._way, _Way.named(wanted)
        if way == before:
            return
        way.give(loader)
        why = None
        try:
            self._switch(loader)
        except Refusal as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001  # no process or descriptor left, no pickle
            why = reason(error)
        if why:
            before.give(loader)
            raise Refusal(why)
        self._way = way

    def _loader(self) -> DataLoader[Any] | None:
        return self._feed.loader() if self._feed else None

    def _option(self, name: str) -> Option:
        kind, summary = SUMMARIES[name]
        default = self._own.settings[name] if self._own else UNKNOWN
        why = self._refusal(name)
        if why:
            return absent(name, why, summary=summary, source=SOURCE, value=default)
        persistent = name == "num_workers" and getattr(self._loader(), "persistent_workers", False)
        offer = LeverOffer(
            name=name,
            kind=kind,
            default=default,
            # one draw of random numbers an epoch more would be another run
            minimum=1 if persistent or name == "prefetch_factor" else 0,
            maximum=MOST,
            effect="new loader",
            summary=summary,
            source=SOURCE,
        )
        return Option(offer)

    def _refusal(self, name: str) -> str | None:
        if self._feed is None:
            return "no DataLoader was seen"
        loader = self._loader()
        if loader is None:
            return "the script has let go of its DataLoader"
        if isinstance(loader.dataset, IterableDataset):
            return "the loader is over an IterableDataset"
        if type(loader)._get_iterator is not DataLoader._get_iterator:  # noqa: SLF001  # who makes its iterators
            return f"{type(loader).__name__} makes its iterators itself"
        if name == "pin_memory" and self._device.type != "cuda":
            return "needs a GPU"
        return None

    def _switch(self, loader: DataLoader[Any]) -> None:
        """Go on in the way that the loader now has, if an epoch is in progress."""
        held = self._feed.iterator() if self._feed else None
        kept = loader._iterator  # noqa: SLF001  # of persistent workers, for all epochs
        face = held if held is not None else kept
        if face is None or (kept is None and _is_over(face)):
            if not self._tried and loader.num_workers:
                raise Refusal(BETWEEN)
            return  # the next epoch's iterator is made that way
        handover = self._redirects.get(face)
        if not isinstance(handover, _Handover):
            handover = _Handover(face)
        new = _successor(handover.newest, loader)
        if not self._tried and isinstance(new, _MultiProcessingDataLoaderIter):
            _try_out(new, handover.newest)
            self._tried = True
        handover.append(new)
        self._redirects[face] = handover
        if kept is not None:
            loader._iterator = new  # noqa: SLF001  # its `_reset` begins the next epoch


class _Handover:
    """The next batch of an iterator whose batches are made by others from some point on."""

    def __init__(self, face: Iterator) -> None:
        self._face = weakref.ref(face)  # the script's own: it lives as long as the script wants
        self._before: deque[Iterator | None] = deque([None])  # None: the face; those still serving
        self._unprimed: Iterator | None = None

    @property
    def newest(self) -> Iterator:
        """The iterator that has the rest of the sampler."""
        newest = self._before[-1] or self._face()
        assert newest is not None
        return newest

    def append(self, new: Iterator) -> None:
        """Let `new` have the rest of the sampler."""
        old = self.newest
        new._sampler_iter, old._sampler_iter = old._sampler_iter, iter(())
        self._before.append(new)
        self._unprimed = new

    def __call__(self) -> Any:
        """Return the next batch; raises StopIteration, and what the script's own code raises."""
        face = self._face()
        assert face is not None
        if self._unprimed is not None:  # here, not between two steps: a sampler may raise
            new, self._unprimed = self._unprimed, None
            _prime(new)
        while True:
            source = self._before[0] or face
            try:
                batch = source._next_data()
            except StopIteration:
                if len(self._before) == 1:
                    raise
                self._before.popleft()
                _shut_down(source)
            else:
                face._num_yielded += 1
                return batch


def _successor(old: Iterator, loader: DataLoader[Any]) -> Iterator:
    """Return an iterator made as the loader says, with nothing to draw from so far."""
    stand_in: DataLoader[Any] = object.__new__(DataLoader)
    vars(stand_in).update(vars(loader))
    sampler = "sampler" if loader.batch_sampler is None else "batch_sampler"
    vars(stand_in)[sampler] = ()
    vars(stand_in)["pin_memory"] = loader.pin_memory and torch.accelerator.is_available()
    # it draws its workers' seed
    vars(stand_in)["generator"] = torch.Generator().manual_seed(old._base_seed)
    several = loader.num_workers > 0
    kind = _MultiProcessingDataLoaderIter if several else _SingleProcessDataLoaderIter
    new: Iterator = kind(stand_in)
    new._index_sampler = old._index_sampler
    return new


def _prime(iterator: Iterator) -> None:
    """Ask the workers for their first batches."""
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        most = iterator._prefetch_factor * iterator._num_workers
        for _ in range(most - len(iterator._task_info)):
            iterator._try_put_index()


def _try_out(new: _MultiProcessingDataLoaderIter, old: Iterator) -> None:
    """Let workers make the next batch, to see whether they can; it is served. Raises Refusal."""
    index = next(old._sampler_iter, None)
    if index is None:
        _shut_down(new)
        raise Refusal(BETWEEN)
    why = None
    try:
        new._sampler_iter = iter([index])
        new._try_put_index()
        arrived, answer = new._try_get_data(TRIAL_S)
        batch = answer[1] if arrived else None
        if not arrived:
            why = f"loader workers made no batch in {TRIAL_S:.0f} s"
        elif isinstance(batch, ExceptionWrapper):
            why = shortened(batch.exc_msg.strip().splitlines()[-1])
    except BaseException:
        _give_up(new, old, index)
        raise
    if why:
        _give_up(new, old, index)
        raise Refusal(why)
    new._tasks_outstanding -= 1
    new._task_info[0] += (batch,)  # as torch keeps what arrives before its turn


def _give_up(new: Iterator, old: Iterator, index: Any) -> None:
    _shut_down(new)
    old._sampler_iter = itertools.chain([index], old._sampler_iter)


def _is_over(iterator: Iterator) -> bool:
    """Tell whether nothing is left to draw; False where it cannot be told."""
    rest = iterator._sampler_iter
    if inspect.isgenerator(rest):
        return inspect.getgeneratorstate(rest) == inspect.GEN_CLOSED
    return operator.length_hint(rest, 1) == 0


def _shut_down(iterator: Iterator) -> None:
    if isinstance(iterator, _MultiProcessingDataLoaderIter):
        iterator._shutdown_workers()
