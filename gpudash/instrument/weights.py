"""Computes what an optimizer reads and writes in a step: the weights, and their state."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ..protocol.inspections import Weights

MIB = 2**20


def weights_of(optimizers: Iterable[Optimizer]) -> Weights | None:
    """Return the sizes of weights and state on this process alone; None without weights."""
    weights: dict[int, Tensor] = {}
    kept: dict[int, Tensor] = {}
    for optimizer in optimizers:
        weights |= {id(each): each for each in updated_by(optimizer) if each.requires_grad}
        kept |= {id(each): each for each in kept_by(optimizer) if _is_array(each)}
    if not weights:
        return None
    return Weights(mib=_mib(weights.values()), state_mib=_mib(kept.values()))


def updated_by(optimizer: Optimizer) -> Iterator[Tensor]:
    """Yield the optimizer's weights. One that wraps others may have none."""
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]


def kept_by(optimizer: Optimizer) -> Iterator[Any]:
    """Yield the optimizer's state for its weights; a custom optimizer may keep anything."""
    for state in getattr(optimizer, "state", {}).values():
        if isinstance(state, Mapping):
            yield from state.values()


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0  # else a step count


def _mib(tensors: Iterable[Tensor]) -> float:
    """Return the MiB on this process: of a DTensor, its own shard."""
    own: Iterable[Any] = (getattr(each, "_local_tensor", each) for each in tensors)
    return sum(int(each.numel() * each.element_size()) for each in own) / MIB
