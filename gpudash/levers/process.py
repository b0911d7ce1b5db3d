"""The levers of the process that trains are moved here, in scripts and in workloads alike."""

import gc
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import torch

from ..process_levers import OF_PROCESS, OWN, ProcessLever
from ..protocol.records import Settings
from ..protocol.training import Lever
from .offers import canonical
from .training_objects import TrainingObjects

RARER = 100
"""How many times as seldom objects are looked at."""
FROZEN_AT_START = gc.get_freeze_count()
"""Python 3.12 begins with some hundred. Were they taken for the training's own, none would thaw."""
PutBack: TypeAlias = Callable[[], object]


class _Mover(NamedTuple):
    move: Callable[[str], PutBack]
    """Moves away from the process's own value; what it returns puts that back."""
    why_not: Callable[[], str | None] = lambda: None


def _collect(value: str) -> PutBack:
    youngest, *others = gc.get_threshold()
    if value == "frozen":
        was_frozen = gc.get_freeze_count() > FROZEN_AT_START
        gc.collect()
        gc.freeze()
        return _leave if was_frozen else gc.unfreeze
    # never off: a training that nobody watches any more would run out of memory
    gc.set_threshold(youngest * RARER, *others)
    return partial(gc.set_threshold, youngest, *others)


def _why_not_collect() -> str | None:
    if not gc.isenabled() or not gc.get_threshold()[0]:
        return "the training has switched the garbage collector off"
    return None


def _leave() -> None:
    """Leave frozen what the training had frozen, and more with it."""


def _compute_on(threads: str) -> PutBack:
    own = torch.get_num_threads()
    torch.set_num_threads(int(threads))
    return partial(torch.set_num_threads, own)


MOVERS: Mapping[str, _Mover] = {
    "gc": _Mover(_collect, _why_not_collect),
    "threads": _Mover(_compute_on),
}


class ProcessLevers:
    """A family that needs no object of the training."""

    def __init__(self) -> None:
        self._moved: dict[str, tuple[str, PutBack]] = {}

    @property
    def offers(self) -> tuple[Lever, ...]:
        return tuple(map(self._offer, OF_PROCESS))

    @property
    def settings(self) -> Settings:
        moved = {name: value for name, (value, _) in self._moved.items()}
        return {lever.name: moved.get(lever.name, OWN) for lever in OF_PROCESS}

    def resolve(self, changes: Settings) -> Settings:
        """Return all settings of these levers after the changes. Raises Refusal."""
        settings = self.settings
        for lever in self.offers:
            text = changes.get(lever.name, settings[lever.name])
            if text != settings[lever.name]:
                settings[lever.name] = canonical(lever, text)
        return settings

    def update(self, found: TrainingObjects) -> None:
        """See Family. The process stays the same."""

    def apply(self, wanted: Settings) -> None:
        for name, before in self.settings.items():
            value = wanted.get(name, OWN)
            if before not in (value, OWN):
                _, put_back = self._moved.pop(name)
                put_back()
            if value not in (before, OWN):
                self._moved[name] = value, MOVERS[name].move(value)

    def _offer(self, lever: ProcessLever) -> Lever:
        return Lever(
            name=lever.name,
            kind="choice",
            default=OWN,
            choices=lever.values,
            summary=lever.summary,
            source=lever.source,
            helps=tuple(lever.helps_by_value.items()),
            refusal=None if lever.name in self._moved else MOVERS[lever.name].why_not(),
        )
