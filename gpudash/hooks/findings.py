"""What has been found of a training so far: its optimizers, its models, how a step of it goes."""

import weakref
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpudash.hooks.backwards import Backwards
from gpudash.hooks.found import Feed, Found, Root, alive, modules_of
from gpudash.hooks.roots import Listener, Parts, Survey, attend, device_of, parameters_of
from gpudash.hooks.tally import Tally

WITHOUT_OPTIMIZER = 8
"""After so many backward passes, and as many steps' worth, no optimizer is waited for."""
SURVEYS = 8
"""A process is looked through for models no more often: each look takes 0.1 to 0.4 s."""


class Findings:
    """Told by the tracker what it meets; `listener` is who hears of the models' calls."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.is_news = True
        """Something is known that the observer was not told."""
        self.optimizers: dict[int, weakref.ref[Optimizer]] = {}
        """By id, in order of first steps."""
        self._gone: list[int] = []
        self._owners: list[weakref.ref[nn.Module]] = []  # all that were roots once
        self.roots: list[Root] = []
        self.models = 0
        """How many that are nobody's child."""
        self._are_new = False  # roots are, and nobody knows whether they are called
        self._parts: Parts | None = None  # which are listened to instead, for a step
        self._surveys_left = SURVEYS
        self.device_type = "cpu"
        self.scaler = False
        self.backwards = Backwards()
        self.calls_seen = False
        """Of a root, in the newest step."""
        self.by_backward = False
        """A step ends without an optimizer."""
        self.patience = WITHOUT_OPTIMIZER
        self.graphs: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        """CUDA graphs, and whether an optimizer steps in them."""
        self.other_thread = False
        """One that is not listened to trains too."""
        self.declares = False
        """The script says where a step begins and ends."""

    def attend(self) -> None:
        """See to it that the models' calls are heard of."""
        for root in self.roots:
            attend(root, self._listener)

    def meet(self, key: int, optimizer: Optimizer) -> list[int]:
        """Take an optimizer that steps for the first time, with its models.

        Return the keys of those that may step beside it.
        """
        gone = self._gone
        self.optimizers[key] = weakref.ref(optimizer, lambda _: gone.append(key))
        self.is_news = True
        own = parameters_of(optimizer)
        if not own.isdisjoint(self._parameters()) or not self._surveys_left:
            return []
        self._surveys_left -= 1
        survey = Survey()
        for module in survey.roots(own):
            self.add_root(module)
        beside = []
        for other in survey.optimizers:
            parameters = parameters_of(other)
            if own.isdisjoint(parameters):  # else it is around this one, or the other way
                beside.append(id(other))
                own |= parameters
        return beside

    def lost(self) -> Iterator[int]:
        """Forget the optimizers that the script has let go of; yield their keys."""
        while self._gone:
            key = self._gone.pop()
            self.optimizers.pop(key, None)
            self.is_news = True
            yield key

    def add_root(self, module: nn.Module) -> None:
        """Take a model that is nobody's child, unless it is known."""
        if any(root.module is module for root in self.roots):
            return
        root = Root(module)
        self.roots = [one for one in self.roots if one.module is not None]
        self.roots.append(root)
        self.models = len(self.roots)
        attend(root, self._listener)
        self._are_new = True
        self._owners.append(weakref.ref(module))
        self.calls_seen = self.is_news = True

    def _parameters(self) -> set[int]:
        """Return the ids of the known models' parameters; those of one that is gone are reused."""
        modules = alive(ref() for ref in self._owners)
        return {one for module in modules for one in parameters_of(module)}

    def learn(self, tally: Tally, *, timed: bool) -> None:
        """Take note of what a step was like; `timed`: its calls were heard of."""
        if tally.backwards and self.backwards.take(tally.backwards):
            self.patience = max(self.patience, WITHOUT_OPTIMIZER * tally.backwards)
            self.is_news = True
        if timed:
            self.calls_seen = tally.calls > 0
            if self._are_new and tally.backwards:
                self._seek_calls()

    def _seek_calls(self) -> None:
        """Listen for a step to what is in the roots that are not called; keep what is."""
        parts, self._parts = self._parts, None
        if parts is None:
            unheard = [root for root in self.roots if not root.was_called]
            if unheard:
                self._parts = Parts(unheard, self._listener)
                return
        else:
            before, self.roots = self.roots, parts.replace(self.roots)
            self.is_news |= self.roots != before
        self._are_new = False

    def found(self, loss: Tensor | None, feed: Feed | None) -> Found:
        """Return it all; `loss` is the newest that is known."""
        optimizers = alive(ref() for ref in self.optimizers.values())
        roots = tuple(root for root in self.roots if root.module is not None)
        device = device_of(modules_of(roots), optimizers, loss)
        self.is_news, self.device_type = False, device.type
        return Found(
            optimizer_refs=() if self.by_backward else tuple(self.optimizers.values()),
            roots=roots,
            feed=feed,
            device=device,
            world_size=world_size(),
            backwards=self.backwards.usual,
            scaler=self.scaler,
            graphs=len(self.graphs) > 0,
            declared=self.declares,
            other_thread=self.other_thread,
        )


def world_size() -> int:
    """Return how many processes train together."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1
