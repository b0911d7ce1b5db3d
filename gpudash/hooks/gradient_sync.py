"""How the processes of a training synchronise gradients, and what of that can be measured."""

import weakref
from collections.abc import Callable, Iterable
from typing import Protocol

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gpudash.hooks.shards import Listener, are_counted
from gpudash.hooks.waits import Waits, listen
from gpudash.instrument.collectives import Collectives, Moved, collectives_of
from gpudash.instrument.last_gradient import LastGradient

MEASURED = {"DistributedDataParallel", "FSDPModule"}
WITHIN = {
    "FullyShardedDataParallel": "FullyShardedDataParallel communicates within forward and backward",
    "SyncBatchNorm": "SyncBatchNorm communicates within forward and backward",
    "DTensor": "tensor parallelism communicates within forward and backward",
}
"""By type: what makes the device wait where that cannot be told from work."""
UNCOUNTED = {"FullyShardedDataParallel", "DTensor"}
"""By type: what moves as many bytes as the others, and nobody counts them."""


class _Reducer:
    """A model in DistributedDataParallel, and its backward passes."""

    def __init__(self, module: DistributedDataParallel, on_gradient: Callable[[], object]) -> None:
        self.module = weakref.ref(module)
        self.last = LastGradient(module, self._came, self._came)
        self.syncs = False
        """Whether this pass does: it is not within `no_sync`."""
        self.passes = 0
        """That sent gradients, in the step in progress."""
        self.passes_a_step = 0
        self._on_gradient = on_gradient

    def _came(self) -> None:
        module = self.module()
        self.syncs = module is not None and module.require_forward_param_sync
        if self.syncs:
            self._on_gradient()


class Hears(Waits, Listener, Protocol):
    """Who is told of waits and of collectives."""


class GradientSync:
    """Hears of the backward passes that are measured; `hears` hears of waits elsewhere.

    `on_gradient` is called on autograd's thread where a part of a pass is over, or where an
    all-reduce is about to begin, maybe the last.
    """

    def __init__(self, hears: Hears, on_gradient: Callable[[], object]) -> None:
        self._hears = hears
        self._on_gradient = on_gradient
        self._reducers: list[_Reducer] = []
        self._kinds: set[str] = set()
        self._moved: Moved | None = None  # in a step, by fully_shard's collectives
        self.is_news = False
        """`unmeasured` has become something else."""

    def update(self, models: Iterable[nn.Module]) -> None:
        """Attend these models, of a training of several processes."""
        listen(self._hears)
        modules = [module for model in models for module in model.modules()]
        self._kinds = {kind.__name__ for module in modules for kind in type(module).__mro__}
        parameters = [one for module in modules for one in nn.Module.parameters(module, False)]
        self._kinds |= {type(one).__name__ for one in parameters}
        self._moved = None
        if "FSDPModule" in self._kinds:
            are_counted(self._hears)
            if not any(map(_is_split_again, parameters)):
                self._kinds.discard("DTensor")
        known = {id(one.module()): one for one in self._reducers}
        self._reducers = [
            known.get(id(module)) or _Reducer(module, self._on_gradient)
            for module in modules
            if isinstance(module, DistributedDataParallel)
        ]

    def unmeasured(self) -> str:
        """Return what of it cannot be measured, as a clause; empty where all can."""
        self.is_news = False
        within = [why for kind, why in WITHIN.items() if kind in self._kinds]
        if any(one.last.is_lost for one in self._reducers):
            within = ["gradients come to no parameter of DistributedDataParallel"]
        elif not self._kinds.isdisjoint(MEASURED):
            return f"exposed communication is measured in part: {within[0]}" if within else ""
        why = (*within, "neither DistributedDataParallel nor fully_shard is seen")[0]
        return f"exposed communication cannot be measured: {why}"

    def pass_begins(self) -> None:
        """Take that a backward pass begins."""
        for one in self._reducers:
            one.last.begin()

    def pass_ends(self) -> bool:
        """Take that it is over; return whether the newest gradient began the last all-reduce."""
        exposes = False
        for one in self._reducers:
            was_lost = one.last.is_lost
            exposes |= one.last.end() and one.syncs
            one.passes += one.syncs
            one.syncs = False  # the next pass may not be followed
            self.is_news |= one.last.is_lost != was_lost
        return exposes

    def step_ends(self, moved: Moved | None) -> None:
        """Take that a step had these passes; `moved`: by fully_shard, None if it is not known."""
        self._moved = moved
        for one in self._reducers:
            one.passes_a_step, one.passes = one.passes, 0

    def collectives(self) -> Collectives:
        """Return those of a step, by the newest numbers that there are."""
        if not self._kinds.isdisjoint(UNCOUNTED):
            return Collectives()
        found = [
            (one.passes_a_step, collectives_of(module))
            for one in self._reducers
            if one.passes_a_step and (module := one.module()) is not None
        ]
        if "FSDPModule" in self._kinds:
            moved = self._moved if are_counted(self._hears) else None
            found.append((1, Collectives(*(moved or (None, None)))))
        return Collectives(
            mib=_sum((times, each.mib) for times, each in found),
            bus_mib=_sum((times, each.bus_mib) for times, each in found),
            ms=_sum((times, each.ms) for times, each in found),
        )


def _is_split_again(parameter: Tensor) -> bool:
    """Return whether tensor parallelism splits it too, where fully_shard does."""
    return sum(not one.is_replicate() for one in getattr(parameter, "placements", ())) > 1


def _sum(parts: Iterable[tuple[int, float | None]]) -> float | None:
    """Return so many times each, together; None where one is not known, or there is none."""
    found = [None if each is None else times * each for times, each in parts]
    known = [each for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None
