"""What was found in the user's training: the objects that the levers act on."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

T = TypeVar("T")
Call: TypeAlias = Callable[..., Any]
Redirects: TypeAlias = WeakKeyDictionary[Any, Callable[[], Any]]


class NewestCall(NamedTuple):
    """A training call of a root: its arguments, kept for as long as somebody asked for them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    autocast: tuple[str, torch.dtype] | None = None
    """The script's own around it: the kind of device, and the precision."""


class Root:
    """A module whose calls are the training's forward passes: nobody's child, or called without it.

    A part is a child whose owner the script does not call itself, as Lightning does not.
    """

    def __init__(self, module: nn.Module, name: str | None = None) -> None:
        self._module = weakref.ref(module)
        self.name = name or type(module).__name__
        """Its type, or that of its owner and where it is in there."""
        self.was_called = False
        """To train."""
        self.looked_at = 0
        """The step from which on its next training call is looked at closely."""
        self.around: Callable[[Call], Call] | None = None
        """What levers put around each training call: gets the bound `module._call_impl`; None:
        nothing. Set between steps alone."""
        self.keeps_calls = False
        """Whether its newest training call is kept: a rehearsal needs it."""
        self.newest: NewestCall | None = None
        self.compiled = False
        """Whether the script called `module.compile()`, which is kept where calls are wrapped."""
        self.autocast = False
        """Whether its newest training call was made inside an autocast of the script's."""

    @property
    def module(self) -> nn.Module | None:
        """The module; None once the script has let go of it."""
        return self._module()


def modules_of(roots: Iterable[Root]) -> list[nn.Module]:
    """Return the roots' modules that the script still has."""
    return alive(root.module for root in roots)


class Feed:
    """The DataLoader that the training's batches come from, and the iterator in progress."""

    def __init__(self, loader: DataLoader[Any], iterator: Any) -> None:
        self.loader = weakref.ref(loader)
        self.iterator = weakref.ref(iterator)


class Found(NamedTuple):
    """A training, as far as it is known. It keeps nothing of the script's alive."""

    optimizer_refs: tuple[weakref.ref[Optimizer], ...]
    """In the order of their first steps; empty where a step ends without one."""
    roots: tuple[Root, ...]
    feed: Feed | None
    """The newest one that was trained on; None: no DataLoader was seen."""
    device: torch.device
    """Of the roots' parameters."""
    world_size: int
    backwards: int | None
    """Backward passes a step; None while it varies or is not known."""
    scaler: bool
    """A GradScaler steps the optimizers."""
    graphs: bool = False
    """CUDA graphs were captured: what they replay knows nothing of a lever."""
    declared: bool = False
    """The script says where a step begins and ends."""
    other_thread: bool = False
    """Another thread trains too."""
    unmeasured: str = ""
    """What of the processes' communication cannot be measured, as a clause."""

    @property
    def optimizers(self) -> tuple[Optimizer, ...]:
        """Those that the script still has."""
        return tuple(alive(ref() for ref in self.optimizer_refs))


def alive(things: Iterable[T | None]) -> list[T]:
    """Return those that are there; a module may have a length of 0."""
    return [thing for thing in things if thing is not None]
