"""How the processes of a training synchronise gradients, and what can be measured of it."""

import weakref
from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..instrument.collectives import BytesMoved, Collectives, CollectiveTimes, collectives_of
from ..instrument.last_gradient import LastGradient
from ..levers.grad_sync import is_averaged
from .hooked_methods import WAITS, Tell, hook_methods
from .shards import hook_collectives

MEASURED = {"DistributedDataParallel", "FSDPModule"}
WITHIN = {
    "FullyShardedDataParallel": "FullyShardedDataParallel communicates within forward and backward",
    "SyncBatchNorm": "SyncBatchNorm communicates within forward and backward",
    "DTensor": "tensor parallelism communicates within forward and backward",
}
"""By type: waits of these cannot be separated from computation."""
UNCOUNTED = {"FullyShardedDataParallel", "DTensor"}
"""By type: the bytes that these move cannot be counted."""


class _Reducer:
    """A model in DistributedDataParallel, and its backward passes."""

    def __init__(self, module: DistributedDataParallel, tell: Tell) -> None:
        self.module = weakref.ref(module)
        self.last = LastGradient(module, self._gradient_ready, self._gradient_ready)
        self.syncs = False
        """The backward pass in progress sends gradients: it is not within `no_sync`."""
        self.passes = 0
        """Passes that sent gradients, in the step in progress."""
        self.passes_a_step = 0
        self.is_own = False
        """It is not within the script's `no_sync`, whatever the lever `grad_sync` does."""
        self.own_passes = 0
        """Such passes, in the step in progress."""
        self._tell = tell

    def _gradient_ready(self) -> None:
        module = self.module()
        self.syncs = module is not None and is_averaged(module)
        self.is_own = module is not None and module.require_forward_param_sync
        if self.syncs:
            self._tell("gradients: came")


class GradientSync:
    """Follows the backward passes of DistributedDataParallel; `tell` gets all other waits.

    It gets gradients on autograd's thread, also before an all-reduce that may be the last.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._reducers: list[_Reducer] = []
        self._kinds: set[str] = set()
        self._followed: set[int] = set()  # ids of modules
        self._moved: BytesMoved | None = None  # of a step, by fully_shard's collectives
        self.averages: int | None = None
        """Passes of a step that send gradients, as the script has it; None: not known."""
        self.is_news = False
        """`unmeasured` or `averages` would now return something else."""

    def update(self, models: Iterable[nn.Module]) -> None:
        hook_methods(WAITS, self._tell, "communication: wait begins", "communication: wait ends")
        modules = [module for model in models for module in model.modules()]
        self._kinds = {kind.__name__ for module in modules for kind in type(module).__mro__}
        parameters = [one for module in modules for one in nn.Module.parameters(module, False)]
        self._kinds |= {type(one).__name__ for one in parameters}
        if (followed := set(map(id, modules))) != self._followed:  # else they are found again
            self._moved, self._followed = None, followed
        if "FSDPModule" in self._kinds:
            hook_collectives(self._tell)
            if not any(map(_is_split_again, parameters)):
                self._kinds.discard("DTensor")
        known = {id(one.module()): one for one in self._reducers}
        self._reducers = [
            known.get(id(module)) or _Reducer(module, self._tell)
            for module in modules
            if isinstance(module, DistributedDataParallel)
        ]

    def unmeasured(self) -> str:
        """Return a clause on what cannot be measured; empty where everything can."""
        self.is_news = False
        within = [why for kind, why in WITHIN.items() if kind in self._kinds]
        if any(one.last.has_given_up for one in self._reducers):
            within = ["gradients come to no parameter of DistributedDataParallel"]
        elif not self._kinds.isdisjoint(MEASURED):
            return f"exposed communication is measured in part: {within[0]}" if within else ""
        why = (*within, "neither DistributedDataParallel nor fully_shard is seen")[0]
        return f"exposed communication cannot be measured: {why}"

    def pass_begins(self) -> None:
        for one in self._reducers:
            one.last.begin()

    def pass_ends(self) -> bool:
        """Return whether the newest gradient began the last all-reduce."""
        exposes = False
        for one in self._reducers:
            was_lost = one.last.has_given_up
            exposes |= one.last.end() and one.syncs
            one.passes += one.syncs
            one.own_passes += one.is_own
            one.syncs = one.is_own = False  # the next pass may go unwatched
            self.is_news |= one.last.has_given_up != was_lost
        return exposes

    def step_ends(self, moved: BytesMoved | None) -> None:
        """Take what fully_shard moved in the step; None: not known."""
        self._moved = moved
        own = [one.own_passes for one in self._reducers]
        if len(own) == 1 and own[0] not in (0, self.averages):  # 0: none was watched
            self.averages, self.is_news = own[0], True
        for one in self._reducers:
            one.passes_a_step, one.passes, one.own_passes = one.passes, 0, 0

    def collectives(self, times: CollectiveTimes | None) -> Collectives:
        """Return a step's collectives; `times` are those of fully_shard's, None if not known."""
        if not self._kinds.isdisjoint(UNCOUNTED):
            return Collectives()
        found = [
            (one.passes_a_step, collectives_of(module))
            for one in self._reducers
            if one.passes_a_step and (module := one.module()) is not None
        ]
        if "FSDPModule" in self._kinds:
            moved = self._moved if hook_collectives(self._tell) else None
            none = None, None
            found.append((1, Collectives(*(moved or none), *(times if moved and times else none))))
        return Collectives(
            mib=_sum((times, each.mib) for times, each in found),
            bus_mib=_sum((times, each.bus_mib) for times, each in found),
            ms=_sum((times, each.ms) for times, each in found),
            exposed_ms=_sum((times, each.exposed_ms) for times, each in found),
        )


def _is_split_again(parameter: Tensor) -> bool:
    """Return whether tensor parallelism splits a parameter that fully_shard splits too."""
    return sum(not one.is_replicate() for one in getattr(parameter, "placements", ())) > 1


def _sum(parts: Iterable[tuple[int, float | None]]) -> float | None:
    found = [None if each is None else times * each for times, each in parts]
    known = [each for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None
