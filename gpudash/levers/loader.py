"""Moves the DataLoader's workers, prefetching and pinning, also in the middle of an epoch.

Batches, their order and the script's random numbers stay the same: a new iterator's seed comes from
the old one's. Limits: a dataset that draws random numbers gets others in a worker. A sampler that
draws from the script's generator draws earlier if more is prefetched. A dataset new to workers is
tried with one batch; a later failure is the same as with that `num_workers` in the script.
No more is offered than shared memory has room for: where it is full, a worker dies.
"""

import multiprocessing
import os
import warnings
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, IterableDataset

from ..instrument.guard import is_from_handler
from ..protocol.records import Settings
from ..protocol.training import Lever
from ..training.commanded import Refusal
from .handover import (
    Handovers,
    Iterator,
    Redirects,
    is_over,
    try_out,
    try_out_between,
)
from .known import KNOWN, MOST
from .offers import UNKNOWN, absent, on_off
from .rehearsal import reason
from .training_objects import Feed, TrainingObjects

PLACE = "/dev/shm"  # noqa: S108  # where torch puts them


def _batches_that_fit(feed: Feed | None) -> int | None:
    """Return None if nothing is known of the loader's batches."""
    if feed is not None and feed.batch_bytes:
        with suppress(OSError, AttributeError):  # there is none, as in Windows
            found = os.statvfs(PLACE)
            if found.f_blocks:  # else it has no limit
                return found.f_blocks * found.f_frsize // feed.batch_bytes
    return None


def most_ahead(fits: int | None, times: int) -> int | None:
    """Return the most workers for `times` batches each, or batches for so many workers."""
    return None if fits is None else max(fits - 1, 0) // max(times, 1)


def why_not(fits: int | None, ahead: int, own: int) -> str | None:
    """Return None also for more batches than fit, if the script has so many of its own."""
    if fits is None or ahead <= max(fits - 1, own):
        return None
    return f"{PLACE} is too small for {ahead + 1} batches: {fits} fit"


def warning(feed: Feed) -> str:
    """Return a clause if the loader's batches, or those of a worker per core, do not fit."""
    fits, loader = _batches_that_fit(feed), feed.loader()
    if fits is None or loader is None:
        return ""
    ahead = loader.prefetch_factor or 2
    most, workers = most_ahead(fits, ahead) or 0, loader.num_workers
    if most < workers:
        return f"{PLACE} is too small for their {workers * ahead + 1} batches: {fits} fit"
    if most < len(os.sched_getaffinity(0)):
        return f"{PLACE} has room for the batches of {most}"
    return ""


SUMMARIES = {
    "num_workers": "Loader processes that make batches; helps while the step waits for data and "
    "cores are free. 0 loads in the training process.",
    "prefetch_factor": "Batches that each loader worker keeps ready; helps where the time to make "
    "a batch varies, and costs host memory.",
    "pin_memory": "Put batches into page-locked memory, so that the copy to the GPU runs beside "
    "the host, where the script copies with non_blocking=True.",
}
HELPS = {
    "num_workers": (("next", "more workers"),),
    "prefetch_factor": (("next", "batches ahead"),),
    "pin_memory": (("on", "pinned copy"),),
}
SOURCE = "torch.utils.data.DataLoader"


class _LoaderSettings(NamedTuple):
    """How a loader makes its batches."""

    num_workers: int
    prefetch_factor: int
    """Kept without workers, but then has no effect."""
    pin_memory: bool

    @classmethod
    def of(cls, loader: DataLoader[Any]) -> "_LoaderSettings":
        factor = loader.prefetch_factor
        return cls(loader.num_workers, 2 if factor is None else factor, bool(loader.pin_memory))

    @classmethod
    def named(cls, settings: Settings) -> "_LoaderSettings":
        workers, factor = int(settings["num_workers"]), int(settings["prefetch_factor"])
        return cls(workers, factor, settings["pin_memory"] == "on")

    def apply_to(self, loader: DataLoader[Any]) -> None:
        # else torch would warn the script, at the next epoch, of workers it did not ask for
        if self.num_workers > len(os.sched_getaffinity(0)):
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


class LoaderLevers:
    """The levers `num_workers`, `prefetch_factor` and `pin_memory`."""

    def __init__(self, redirects: Redirects) -> None:
        self._handovers = Handovers(redirects)
        self._feed: Feed | None = None
        self._own: _LoaderSettings | None = None
        self._active: _LoaderSettings | None = None
        self._tried = False  # workers have made batches of this dataset
        self._left: weakref.ref[Iterator] | None = None  # before the newest switch
        self.held = 0
        """Batches that were there already when what is measured began."""

    def update(self, found: TrainingObjects) -> None:
        before, loader = self._loader(), found.feed.loader() if found.feed else None
        if loader is None or loader is not before:
            if before is not None and self._own is not None:
                self._own.apply_to(before)  # in case the script uses it again
            self._own = self._active = _LoaderSettings.of(loader) if loader is not None else None
            self._tried = loader is not None and loader.num_workers > 0
            self.held = _most_ahead(self._own)
        self._feed, self._fits = found.feed, _batches_that_fit(found.feed)
        self._device = found.device

    @property
    def offers(self) -> tuple[Lever, ...]:
        return tuple(self._offer(name) for name in SUMMARIES)

    @property
    def settings(self) -> Settings:
        values = {offer.name: offer.default for offer in self.offers}
        return self._active.settings if self._active else values

    def begins(self, *, in_blocks: bool, anew: bool) -> None:
        self._handovers.keep(keeps=in_blocks)
        refs = self._left, self._feed.iterator if self._feed is not None else None
        known = [iterator for ref in refs if ref is not None and (iterator := ref()) is not None]
        held = (self._handovers.held(one, anew=anew) for one in known)
        self.held = max(held, default=0)

    @property
    def num_workers(self) -> int:
        return self._active.num_workers if self._active else 0

    def why_no_delay(self) -> str | None:
        """Return why a delay that is set here does not reach the loader; None if it does."""
        loader = self._loader()
        if self._feed is None or loader is None:
            return "no DataLoader was seen"
        if type(loader)._get_iterator is not DataLoader._get_iterator:  # noqa: SLF001  # overrides who makes its iterators
            return f"{type(loader).__name__} makes its iterators itself"
        is_forked = not loader.num_workers or _rerun_refusal(loader) is None
        return None if is_forked else "its workers were not forked from the training"

    def apply(self, wanted: Settings) -> None:
        loader = self._loader()
        if loader is None or self._active is None or self._own is None:
            return
        before, new = self._active, _LoaderSettings.named(wanted)
        if new == before:
            return
        own_ahead = _most_ahead(self._own)
        if (small := why_not(self._fits, _most_ahead(new), own_ahead)) is not None:
            raise Refusal(small)  # each of two values may fit by itself
        new.apply_to(loader)
        why = None
        try:
            self._switch(loader)
        except Refusal as error:
            why = str(error)
        except Exception as error:  # no process or descriptor left, or a pickling error
            if is_from_handler(error):
                before.apply_to(loader)
                raise
            why = reason(error)
        if why and new != self._own:  # else the next epoch has it in any case
            before.apply_to(loader)
            raise Refusal(why)
        self._active = new

    def _loader(self) -> DataLoader[Any] | None:
        return self._feed.loader() if self._feed else None

    def _offer(self, name: str) -> Lever:
        summary = SUMMARIES[name]
        default = self._own.settings[name] if self._own else UNKNOWN
        why = self._refusal(name)
        if why:
            return absent(name, why, summary=summary, source=SOURCE, value=default)
        most = self._most(name)
        is_number = isinstance(KNOWN[name], range)
        needs = _why_workers(self._loader()) if name == "num_workers" else ""
        full = f"{PLACE} has no room for more batches" if is_number and most < MOST else ""
        return Lever(
            name=name,
            kind="count" if is_number else "switch",
            default=default,
            minimum=1 if needs or name == "prefetch_factor" else 0,
            maximum=most,
            bound=", ".join(filter(None, (needs, full))),
            effect="new loader",
            helps=HELPS[name],
            summary=summary,
            source=SOURCE,
        )

    def _most(self, name: str) -> int:
        assert self._own
        assert self._active
        mine = self._own.num_workers, self._own.prefetch_factor
        times = self._active.prefetch_factor, self._active.num_workers
        at = 0 if name == "num_workers" else 1
        fits = most_ahead(self._fits, times[at])
        return MOST if fits is None else min(MOST, max(fits, mine[at]))

    def _refusal(self, name: str) -> str | None:
        if self._feed is None:
            return "no DataLoader was seen"
        loader = self._loader()
        if loader is None:
            return "the script has let go of its DataLoader"
        if isinstance(loader.dataset, IterableDataset):
            return "the loader is over an IterableDataset"
        if type(loader)._get_iterator is not DataLoader._get_iterator:  # noqa: SLF001  # overrides who makes its iterators
            return f"{type(loader).__name__} makes its iterators itself"
        if name == "pin_memory" and self._device.type != "cuda":
            return "needs a GPU"
        return self._workers_refusal(loader) if name == "num_workers" else None

    def _workers_refusal(self, loader: DataLoader[Any]) -> str | None:
        if not self._most("num_workers"):
            return f"{PLACE} is too small for the batches of a worker"
        return None if self._tried else _rerun_refusal(loader)

    def _switch(self, loader: DataLoader[Any]) -> None:
        handle = self._handle(loader)
        handed_over = handle is not None and self._hand_over(handle, loader)
        if not handed_over and self._is_untried(loader):
            try_out_between(loader)
        self._tried = self._tried or loader.num_workers > 0

    def _handle(self, loader: DataLoader[Any]) -> Iterator | None:
        """Return the script's iterator in the epoch; None between two epochs."""
        persistent = loader._iterator  # noqa: SLF001  # one iterator for all epochs
        iterator = persistent
        if iterator is None and self._feed is not None:
            iterator = self._feed.iterator()
        if iterator is None:
            return None
        is_between = persistent is None and is_over(self._handovers.newest(iterator))
        return None if is_between else iterator

    def _hand_over(self, handle: Iterator, loader: DataLoader[Any]) -> bool:
        """Return False if no batch is left."""
        old = self._handovers.newest(handle)
        new = self._handovers.successor(handle, old, loader)
        if self._is_untried(loader) and not try_out(new, old):
            return False
        self._handovers.hand_over(old, new)
        self._left = weakref.ref(old)
        if loader._iterator is not None:  # noqa: SLF001  # its `_reset` begins each epoch
            loader._iterator = new  # noqa: SLF001  # as above
        return True

    def _is_untried(self, loader: DataLoader[Any]) -> bool:
        return loader.num_workers > 0 and not self._tried


def _most_ahead(loader: _LoaderSettings | None) -> int:
    return 0 if loader is None else loader.num_workers * loader.prefetch_factor


def batch_size(feed: Feed | None) -> Lever:
    loader: Any = feed.loader() if feed else None
    owners = (loader, getattr(loader, "batch_sampler", None))
    sizes = (getattr(one, "batch_size", None) for one in owners)
    return absent(
        "batch_size",
        "the script sets its batch size itself",
        summary="Samples in one batch of the DataLoader; larger batches fill the GPU better, as "
        "long as memory and convergence allow.",
        source=SOURCE,
        value=next((str(size) for size in sizes if type(size) is int), UNKNOWN),
    )


def _why_workers(loader: DataLoader[Any] | None) -> str:
    if getattr(loader, "persistent_workers", False):  # else PyTorch draws a seed in each epoch
        return "persistent_workers=True needs loader workers"
    return "its timeout needs loader workers" if getattr(loader, "timeout", 0) else ""


def _rerun_refusal(loader: DataLoader[Any]) -> str | None:
    """Return None if workers are forked: they do not run the script again."""
    context: Any = loader.multiprocessing_context or multiprocessing
    # without `allow_none` this would fix the start method
    method = context.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if method == "fork":
        return None
    return f"each loader worker would run the script again (start method {method})"
