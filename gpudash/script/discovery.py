"""What is known of a training so far, also in one line: optimizers, models, how its steps go."""

import time
import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..levers.loader import warning
from ..levers.training_objects import Feed, Root, TrainingObjects, alive, modules_of
from .boundaries import State
from .hooked_methods import Tell, imported_optimizers
from .loaders import Loaders
from .roots import (
    Parts,
    Survey,
    device_of,
    has_compiled,
    install_hook,
    is_compiled,
    look_at_all,
    parameters_of,
    remove_hook,
)
from .step_counts import Backwards, StepCounts

STOPPED = "gpudash stopped looking for models: it took too long"
WITHOUT_OPTIMIZER = 8
"""After so many steps' backward passes without an optimizer step, none is expected."""
SURVEYS_S, SURVEYS_SHARE = 2.0, 0.01
"""Searches of the process for models take so many seconds at most, and this share of the time
since the first one."""
LOOKS = 8
"""After so many measured steps without a backward pass, as where a CUDA graph is replayed, models
that were just found are no longer expected to be called."""
MOST_FROZEN = 64
"""At most so many models without an optimizer are watched at first, …"""
MOST_UNCALLED = 8
"""… and so many afterwards that no step has called: a step may call them later."""


Fact: TypeAlias = Literal["acts", "scaler", "other thread", "padding"]
"""Some calls without gradients were taken for rollouts; a GradScaler steps the optimizers; another
thread trains too; padding among the tokens is not known."""


class Discovery:
    """Collects what the tracker finds; `tell` gets the models' calls."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.is_news = True
        """There is something that the observer does not know yet."""
        self.optimizers: dict[int, weakref.ref[Any]] = {}
        """PyTorch's and those of a library's own, by id, in the order of their first steps."""
        self._gone: list[int] = []
        self._owners: list[weakref.ref[nn.Module]] = []  # all modules that ever were roots
        self.roots: list[Root] = []
        self._are_new = False  # some roots are new, and may never be called
        self._looks = 0  # measured steps since then, without a backward pass
        self._parts: Parts | None = None  # submodules that are hooked for one step instead
        self._searched_s = 0.0  # so far
        self._searches = True  # it has taken too long so far otherwise
        self._first_survey_s = time.monotonic()
        self.frozen: list[Root] = []
        """Models without an optimizer: their calls are forward passes without gradients."""
        self.facts: set[Fact] = set()
        self.device_type = "cpu"
        self.backwards = Backwards()
        self.calls_seen = False
        """A root was called in the newest step."""
        self.patience = WITHOUT_OPTIMIZER
        self.graphs: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        """CUDA graphs, and whether an optimizer steps in them."""

    def note(self, fact: Fact) -> None:
        self.is_news |= fact not in self.facts
        self.facts.add(fact)

    def install_hooks(self) -> None:
        for root in (*self.roots, *self.frozen):
            install_hook(root, self._tell)

    def remove_hooks(self) -> None:
        for root in (*self.roots, *self.frozen):
            remove_hook(root)

    def end(self) -> None:
        self.remove_hooks()
        if self._parts is not None:
            self._parts.unhook()

    def has_plain_calls(self) -> bool:
        """Return whether hooks may come and go: no lever needs them, and nothing was compiled."""
        needs = (
            root.around is not None or root.keeps_calls for root in (*self.roots, *self.frozen)
        )
        return not has_compiled() and not any(needs)

    def meet(self, key: int, optimizer: Any) -> list[int]:
        """Return the ids of other optimizers that may step beside it."""
        gone = self._gone
        self.optimizers[key] = weakref.ref(optimizer, lambda _: gone.append(key))
        self.is_news = True
        own = parameters_of(optimizer)
        if not own.isdisjoint(self._parameters()):
            return []
        survey = self._survey(own)
        for module in survey.roots(own) if own else survey.with_gradients():
            self._add_root(module)
        self._add_frozen(survey.frozen([]))
        return survey.beside(own)

    def train_without_optimizer(self, survey: Survey) -> None:
        self.is_news = True
        trained = survey.with_gradients()
        for module in trained:
            self._add_root(module)
        self._add_frozen(survey.frozen(trained))

    def _survey(self, parameters: set[int]) -> Survey:
        """Search for what was made unseen: at first, and where no model has these parameters."""
        survey, began_s = Survey(), time.monotonic()
        if self._searched_s and survey.roots(parameters) and not imported_optimizers():
            return survey
        passed_s = began_s - self._first_survey_s
        self._searches = self._searched_s <= SURVEYS_S + SURVEYS_SHARE * passed_s
        if not self._searches:
            return survey
        look_at_all()
        survey = Survey()
        self._searched_s += time.monotonic() - began_s
        return survey

    def lost(self) -> list[int]:
        keys = []
        while self._gone:
            keys.append(key := self._gone.pop())
            self.optimizers.pop(key, None)
            self.is_news = True
        return keys

    def _add_root(self, module: nn.Module) -> None:
        if any(root.module is module for root in self.roots):
            return
        root = Root(module)
        self.roots = [one for one in self.roots if one.module is not None]
        self.roots.append(root)
        for other in self.frozen:  # its optimizer has stepped for the first time
            if other.module is module:
                remove_hook(other)
        self.frozen = [one for one in self.frozen if one.module not in (None, module)]
        install_hook(root, self._tell)
        self._expect_calls()
        self._owners.append(weakref.ref(module))
        self.calls_seen = self.is_news = True

    def _add_frozen(self, modules: Iterable[nn.Module]) -> None:
        known = {id(root.module) for root in (*self.roots, *self.frozen)}
        self.frozen = [one for one in self.frozen if one.module is not None]
        only_compiled = has_compiled()
        for module in modules:
            if len(self.frozen) >= MOST_FROZEN:
                return
            if id(module) in known or (only_compiled and not is_compiled(module)):
                continue
            root = Root(module, is_frozen=True)
            self.frozen.append(root)
            install_hook(root, self._tell)
            self._expect_calls()

    def _expect_calls(self) -> None:
        self._are_new, self._looks = True, 0

    @property
    def _is_complete(self) -> bool:
        return not self._are_new or self._looks >= LOOKS

    def _parameters(self) -> set[int]:
        """Leave out models that are gone: their parameters' ids may be reused."""
        modules = alive(self._owners)
        return {one for module in modules for one in parameters_of(module)}

    def learn(self, tally: StepCounts, *, timed: bool) -> None:
        """Learn from a finished step; `timed`: calls of the models were hooked in it."""
        if tally.backwards and self.backwards.take(tally.backwards):
            self.patience = max(self.patience, WITHOUT_OPTIMIZER * tally.backwards)
            self.is_news = True
        if timed:
            self.calls_seen = tally.calls > 0
            if self._are_new:
                self._look_through(tally)

    def _look_through(self, tally: StepCounts) -> None:
        was_complete = self._is_complete
        if tally.backwards:
            self._seek_calls()
        else:
            self._looks += 1
        self.is_news |= self._is_complete != was_complete

    def _seek_calls(self) -> None:
        parts, self._parts = self._parts, None
        if parts is None:
            uncalled = [root for root in (*self.roots, *self.frozen) if not root.was_called]
            if uncalled:
                self._parts = Parts(uncalled, self._tell)
                return
        else:
            before, self.roots = self.roots, parts.replace(self.roots)
            self._keep_frozen(parts.replace(self.frozen))
            is_called = any(one.was_called for one in self.roots)
            self.is_news |= self.roots != before or not is_called
        self._are_new = False

    def _keep_frozen(self, frozen: list[Root]) -> None:
        called = [one for one in frozen if one.was_called]
        others = [one for one in frozen if not one.was_called]
        self.frozen = called + others[:MOST_UNCALLED]
        for root in others[MOST_UNCALLED:]:
            remove_hook(root)
        self.is_news |= len(called) > 0

    def found(self, loss: Tensor | None, feeds: Loaders, state: State) -> TrainingObjects:
        by_updates = () if state == "passes" else tuple(self.optimizers.values())
        optimizers = alive(self.optimizers.values())
        roots = tuple(root for root in self.roots if root.module is not None)
        device = device_of(modules_of(roots), optimizers, loss)
        self.is_news, self.device_type = False, device.type
        return TrainingObjects(
            optimizer_refs=tuple(ref for ref in by_updates if isinstance(ref(), Optimizer)),
            roots=roots,
            feed=feeds.feed,
            foreign=feeds.foreign,
            device=device,
            world_size=world_size(),
            backwards=self.backwards.usual,
            scaler="scaler" in self.facts,
            graphs=len(self.graphs) > 0,
            declared=state == "declared",
            own_optimizer=_library(alive(by_updates)),
            other_thread="other thread" in self.facts,
            frozen=tuple(root for root in self.frozen if root.was_called),
            acts="acts" in self.facts,
            counts_padding="padding" in self.facts,
            is_called=self._are_new or any(root.was_called for root in roots),
            complete=self._is_complete,
            searched=self._searches,
        )


def _library(optimizers: Iterable[Any]) -> str:
    own = (type(one) for one in optimizers if not isinstance(one, Optimizer))
    return next((kind.__module__.partition(".")[0] for kind in own), "")


def world_size() -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def found_line(found: TrainingObjects) -> str:
    """Return a line such as `AdamW, root GPT, 4 backward passes a step, no DataLoader`."""
    parts = [_optimizers(found), _roots(found), _backwards(found), _feed(found.feed, found.foreign)]
    parts[2:2] = _frozen(found)
    if found.acts:
        parts.append("calls without gradients before a step taken for a rollout")
    if found.scaler:
        parts.insert(1, "GradScaler")
    if found.declared:
        parts.append("steps as the script declares them")
    if found.counts_padding:
        parts.append("tokens with padding")
    if found.other_thread:
        parts.append("another thread trains too: its steps are not counted")
    if found.unmeasured:
        parts.append(found.unmeasured)
    return ", ".join(parts)


def _optimizers(found: TrainingObjects) -> str:
    names = _counted(type(one).__name__ for one in found.optimizers)
    if found.own_optimizer:
        names.append(f"an optimizer of {found.own_optimizer}")
    if names:
        return " and ".join(names)
    return "optimizer unknown" if found.declared else "no optimizer: each backward pass ends a step"


def _roots(found: TrainingObjects) -> str:
    names = [root.name for root in found.roots if root.module is not None]
    if not names:
        return "root unknown" if found.searched else f"root unknown ({STOPPED})"
    said = f"root{'s' if len(names) > 1 else ''} {' and '.join(_counted(names))}"
    return said if found.is_called else f"{said} (no call seen: its forward pass is in your code)"


def _frozen(found: TrainingObjects) -> list[str]:
    names = _counted(root.name for root in found.frozen if root.module is not None)
    return [f"frozen {' and '.join(names)}"] if names else []


def _backwards(found: TrainingObjects) -> str:
    if found.backwards is None:
        return "backward passes a step unknown"
    passes = "pass" if found.backwards == 1 else "passes"
    return f"{found.backwards} backward {passes} a step"


def _feed(feed: Feed | None, foreign: str) -> str:
    if feed is None:
        return f"a loader of {foreign}" if foreign else "no DataLoader"
    loader = feed.loader()
    if loader is None:
        return "DataLoader"
    workers = "worker" if loader.num_workers == 1 else "workers"
    small = warning(feed)
    return f"DataLoader with {loader.num_workers} {workers}{small and f' ({small})'}"


def _counted(names: Iterable[str]) -> list[str]:
    return [f"{count} × {name}" if count > 1 else name for name, count in Counter(names).items()]
