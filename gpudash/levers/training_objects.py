"""What was found in the user's training, and the objects that levers act on."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader


def each_tensor(change: Callable[[Tensor], Tensor], tree: Any) -> Any:
    # fast paths for most calls: PyTorch's own function takes 10 µs
    if isinstance(tree, Tensor):
        return change(tree)
    if type(tree) is tuple:
        return tuple(each_tensor(change, branch) for branch in tree)
    if type(tree) is dict and not tree:  # a call without keywords
        return tree
    return tree_map_only(Tensor, change, tree)


T = TypeVar("T")
Call: TypeAlias = Callable[..., Any]
Redirects: TypeAlias = WeakKeyDictionary[Any, Callable[[], Any]]


class NewestCall(NamedTuple):
    """The arguments of a root's training call, kept while a rehearsal may need them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    autocast: tuple[str, torch.dtype] | None = None
    """The device type and dtype of the script's own autocast around the call."""
    has_gradients: bool = True
    """Whether gradients pass through it; a frozen model's call is mostly without."""


class Root:
    """A module that the script calls: a top-level one, or a submodule, as Lightning calls them."""

    def __init__(
        self, module: nn.Module, name: str | None = None, *, is_frozen: bool = False
    ) -> None:
        self.module_ref = weakref.ref(module)
        self.name = name or type(module).__name__
        """The module's type. For a submodule: its owner's type, and its path in the owner."""
        self.is_frozen = is_frozen
        """No optimizer has any of its parameters: it is an encoder or a teacher, for instance."""
        self.was_called = False
        """It was called: to train, unless it is frozen."""
        self.trained_on: int | None = None
        """The first dimension of its newest training call; None while not known."""
        self.generates = False
        """It was called more than once without gradients with a batch, before it was trained on."""
        self.looked_at = 0
        """The step from which on its next training call is looked at again."""
        self.around: Callable[[Call], Call] | None = None
        """What levers put around each training call. It gets the bound `module._call_impl`. None:
        nothing. It is set between steps only."""
        self.keeps_calls = False
        """Keep the newest training call, because a rehearsal needs it."""
        self.newest: NewestCall | None = None
        self.compiled = False
        """The script called `module.compile()`. Wrapped calls keep using that compiled code."""
        self._has_samples_first: bool | None = None
        self.autocast: torch.dtype | None = None
        """That of the script's autocast around the newest training call; None: there was none."""

    @property
    def has_samples_first(self) -> bool:
        """A part that takes sequences may have the samples in its second dimension."""
        if self._has_samples_first is None:
            module = self.module
            parts = () if module is None else nn.Module.modules(module)
            self._has_samples_first = all(getattr(one, "batch_first", True) for one in parts)
        return self._has_samples_first

    @property
    def module(self) -> nn.Module | None:
        """None once the script has released it."""
        return self.module_ref()


def modules_of(roots: Iterable[Root]) -> list[nn.Module]:
    return alive(root.module_ref for root in roots)


def shards_of(module: nn.Module) -> Iterator[Any]:
    """Yield what fully_shard keeps of each weight of the module."""
    state_of = getattr(type(module), "_get_fsdp_state", None)
    state = None if state_of is None else state_of(module)
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # an older torch has one group at most
        groups = (getattr(state, "_fsdp_param_group", None),)
    yield from (one for each in groups if each for one in each.fsdp_params)


class Feed:
    """The DataLoader that feeds the training, and its iterator in progress."""

    def __init__(self, loader: DataLoader[Any], iterator: Any, batch_bytes: int = 0) -> None:
        self.loader = weakref.ref(loader)
        self.iterator = weakref.ref(iterator)
        self.batch_bytes = batch_bytes
        """The tensors of its first batch; 0 if it has none, or is not known."""


class TrainingObjects(NamedTuple):
    """What is known of a training. It keeps no object of the script's alive."""

    optimizer_refs: tuple[weakref.ref[Optimizer], ...]
    """PyTorch's, in the order of their first steps; empty where a backward pass ends a step."""
    roots: tuple[Root, ...]
    """The models that train."""
    feed: Feed | None
    """The newest one that was trained on; None: no DataLoader was seen."""
    device: torch.device
    """Where the training computes."""
    world_size: int
    backwards: int | None
    """Backward passes a step; None while not known, or where it varies."""
    scaler: bool
    """A GradScaler steps the optimizers."""
    graphs: bool = False
    """CUDA graphs were captured. A replay would ignore every lever."""
    declared: bool = False
    """The script declares where its steps begin and end."""
    other_thread: bool = False
    """Another thread trains too."""
    own_optimizer: str = ""
    """The library whose own optimizer updates the weights; empty: none was seen."""
    foreign: str = ""
    """The library whose own loader makes batches; empty: none was seen."""
    frozen: tuple[Root, ...] = ()
    """Models without an optimizer that were called in steps."""
    is_called: bool = True
    """Calls of the models were seen, or may still be."""
    acts: bool = False
    """Some calls of the models without gradients were taken for rollouts."""
    searched: bool = True
    """Models that were not seen when they were made were searched for."""
    complete: bool = True
    """Steps were looked through for the calls of all these models, so what no step has called will
    hardly be called."""
    counts_padding: bool = False
    """Padding counts as tokens: no attention mask tells which it is."""
    averages: int | None = None
    """Backward passes of a step that average gradients over the ranks; None: not known."""
    unmeasured: str = ""
    """A clause on the communication between processes that cannot be measured; empty: none."""

    @property
    def optimizers(self) -> tuple[Optimizer, ...]:
        return tuple(alive(self.optimizer_refs))


def alive(refs: Iterable[weakref.ref[T]]) -> list[T]:
    """Keep a module that is false: its length may be 0."""
    return [thing for ref in refs if (thing := ref()) is not None]
