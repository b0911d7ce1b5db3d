"""Counts the samples and tokens of a batch, as far as its shape shows them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from ..instrument.guard import is_from_handler

DEPTH = 4
"""The deepest nesting of a batch that is searched."""
SEQUENCES = (list, tuple)


def first_dimension(batch: Any) -> int | None:
    """Return the samples: the first dimension of the first suitable tensor. None: there is none."""
    if type(batch) in SEQUENCES and batch and type(batch[0]) is Tensor:  # most batches
        first = batch[0]
        if first.dim():
            return first.size(0)  # a nested tensor has no `shape`
    tensor = first_tensor(batch)
    return tensor.size(0) if tensor is not None else None


class Tokens(NamedTuple):
    """The tokens of a batch."""

    number: int
    """Without padding, if that is known."""
    padding: int | None = None
    """How many more there are that only pad; None if not known."""


def tokens_in(batch: Any) -> Tokens | None:
    """Return None without `input_ids`. A mask on a device would have to be waited for."""
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    if not isinstance(ids, Tensor):
        return None
    every, real = ids.numel(), _unmasked(ids, batch.get("attention_mask"))
    return Tokens(every) if real is None else Tokens(real, every - real)


def _unmasked(ids: Tensor, mask: Any) -> int | None:
    """Return None unless the mask is one of 0 and 1 on the host."""
    if type(mask) is not Tensor or not mask.is_cpu or mask.is_floating_point():
        return None
    if mask.shape != ids.shape:
        return None
    try:
        return int(mask.count_nonzero())  # no sync: it is on the host
    except Exception as error:  # in a dispatch mode of the script's
        if is_from_handler(error):
            raise
        return None


def needs_gradient(inputs: tuple[Any, ...]) -> bool:
    tensors = (first_tensor(one) for one in inputs)
    return any(one is not None and one.requires_grad for one in tensors)


def first_tensor(batch: Any, depth: int = DEPTH) -> Tensor | None:
    """Return the first tensor that has a dimension and may hold all samples of the batch."""
    if isinstance(batch, Tensor):
        return batch if batch.ndim else None
    if not depth:
        return None
    if isinstance(batch, SEQUENCES):
        parts: Any = () if _look_like_samples(batch) else batch
    elif isinstance(batch, Mapping):
        parts = batch.values()
    else:
        return None
    for part in parts:
        # a hand-written collate function may keep images of different shapes as a list
        found = None if isinstance(part, SEQUENCES) else first_tensor(part, depth - 1)
        if found is not None:
            return found
    return None


def bytes_of(batch: Any, depth: int = DEPTH) -> int:
    if isinstance(batch, Tensor):
        return 0 if batch.is_sparse else batch.nbytes  # torch refuses it for a sparse one
    if isinstance(batch, Mapping):
        batch = tuple(batch.values())
    if not depth or not isinstance(batch, SEQUENCES):
        return 0
    return sum(bytes_of(part, depth - 1) for part in batch)


def _look_like_samples(batch: Sequence[Any]) -> bool:
    first = batch[0] if batch else None
    return isinstance(first, Mapping) and all(
        isinstance(one, Mapping) and one.keys() == first.keys() for one in batch
    )
