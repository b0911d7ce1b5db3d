"""Computes what an optimizer reads and writes in a step: the weights, and their state."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ..protocol.inspections import Weights

MIB = 2**20


def weights_of(optimizers: Iterable[Optimizer]) -> Weights | None:
    """Return the sizes on this process alone."""
    weights: dict[int, Tensor] = {}
    kept: dict[int, Tensor] = {}
    for optimizer in optimizers:
        weights |= {id(each): each for each in updated_by(optimizer) if each.requires_grad}
        kept |= {id(each): each for each in kept_by(optimizer) if _is_array(each)}
    if not weights:
        return None
    return Weights(mib=_mib(weights.values()), state_mib=_mib(kept.values()))


def updated_by(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]


def kept_by(optimizer: Optimizer) -> Iterator[Any]:
    """Yield anything: a custom optimizer keeps what it likes."""
    for state in getattr(optimizer, "state", {}).values():
        if isinstance(state, Mapping):
            yield from state.values()


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0  # else a step count


def _mib(tensors: Iterable[Tensor]) -> float:
    """Count only the own shard of a DTensor."""
    own: Iterable[Any] = (getattr(each, "_local_tensor", each) for each in tensors)
    return sum(int(each.numel() * each.element_size()) for each in own) / MIB
