"""How the processes of a training synchronise gradients, and what of that can be measured."""

import weakref
from collections.abc import Callable, Iterable

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpudash.hooks.waits import Waits, listen
from gpudash.instrument.collectives import Collectives, collectives_of
from gpudash.instrument.last_gradient import LastGradient

MEASURED = {"DistributedDataParallel", "FSDPModule"}
WITHIN = {
    "FullyShardedDataParallel": "FullyShardedDataParallel communicates within forward and backward",
    "SyncBatchNorm": "SyncBatchNorm communicates within forward and backward",
    "DTensor": "tensor parallelism communicates within forward and backward",
}
"""By type: what makes the device wait where that cannot be told from work."""


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


class GradientSync:
    """Hears of the backward passes that are measured; `waits` hears of waits elsewhere.

    `on_gradient` is called on autograd's thread where a part of a pass is over, or where an
    all-reduce is about to begin, maybe the last.
    """

    def __init__(self, waits: Waits, on_gradient: Callable[[], object]) -> None:
        self._waits = waits
        self._on_gradient = on_gradient
        self._reducers: list[_Reducer] = []
        self._kinds: set[str] = set()
        self.is_news = False
        """`unmeasured` has become something else."""

    def update(self, models: Iterable[nn.Module]) -> None:
        """Attend these models, of a training of several processes."""
        listen(self._waits)
        modules = [module for model in models for module in model.modules()]
        self._kinds = {kind.__name__ for module in modules for kind in type(module).__mro__}
        self._kinds |= {
            type(one).__name__ for module in modules for one in nn.Module.parameters(module, False)
        }
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
        if "FSDPModule" in self._kinds:
            within = [why for why in within if why != WITHIN["DTensor"]]
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

    def step_ends(self) -> None:
        """Take that a step had these passes."""
        for one in self._reducers:
            one.passes_a_step, one.passes = one.passes, 0

    def collectives(self) -> Collectives:
        """Return those of a step, by the newest numbers that there are."""
        found = [
            (one.passes_a_step, collectives_of(module))
            for one in self._reducers
            if one.passes_a_step and (module := one.module()) is not None
        ]
        return Collectives(
            mib=_sum((times, each.mib) for times, each in found),
            ms=_sum((times, each.ms) for times, each in found),
        )


def _sum(parts: Iterable[tuple[int, float | None]]) -> float | None:
    """Return so many times each, together; None where one is not known, or there is none."""
    found = [None if each is None else times * each for times, each in parts]
    known = [each for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None
