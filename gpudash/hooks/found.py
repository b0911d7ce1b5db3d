"""What was found in the user's training: the objects that the levers act on."""

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

Call: TypeAlias = Callable[..., Any]


class NewestCall(NamedTuple):
    """A training call of a root: its arguments, kept for as long as somebody asked for them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Root:
    """A module that is nobody's child, and whose calls are the training's forward passes."""

    def __init__(self, module: nn.Module) -> None:
        self._module = weakref.ref(module)
        self.around: Callable[[Call], Call] | None = None
        """What a lever puts around the module's call; None: nothing."""
        self.keeps_calls = False
        """Whether its newest training call is kept: a rehearsal needs it."""
        self.newest: NewestCall | None = None

    @property
    def module(self) -> nn.Module | None:
        """The module; None once the script has let go of it."""
        return self._module()


class Feed:
    """The DataLoader that the training's batches come from, and the iterator in progress."""

    def __init__(self, loader: DataLoader[Any], iterator: Any) -> None:
        self.loader = weakref.ref(loader)
        self.iterator = weakref.ref(iterator)


class Found(NamedTuple):
    """A training, as far as it is known."""

    optimizers: tuple[Optimizer, ...]
    """In the order of their first steps; empty where a step ends without one."""
    roots: tuple[Root, ...]
    feed: Feed | None
    """None: no DataLoader was seen."""
    device: torch.device
    """Of the roots' parameters."""
    world_size: int
    backwards: int | None
    """Backward passes a step; None while it varies or is not known."""
    scaler: bool
    """A GradScaler steps the optimizers."""


def described(found: Found) -> str:
    """Return in one line what was found: `AdamW, root GPT, 1 backward pass a step, DataLoader`."""
    modules = [root.module for root in found.roots]
    roots = [type(module).__name__ for module in modules if module is not None]
    optimizers = [type(optimizer).__name__ for optimizer in found.optimizers]
    passes = found.backwards
    parts = (
        _counted(optimizers) or "no optimizer: a step ends with a backward pass",
        f"root{'s' * (len(roots) > 1)} {_counted(roots) or 'unknown'}",
        "backward passes a step unknown"
        if passes is None
        else f"{passes} backward pass{'es' * (passes != 1)} a step",
        "DataLoader" if found.feed else "no DataLoader",
        *(["GradScaler"] if found.scaler else []),
    )
    return ", ".join(parts)


def _counted(names: list[str]) -> str:
    """Return the names, each once: `2 Adam and SGD`."""
    counts = Counter(names).items()
    return " and ".join(name if count == 1 else f"{count} {name}" for name, count in counts)
