"""How many samples a batch holds, as far as its shape tells, and how many tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

DEPTH = 4
"""A batch may be nested so deep."""
SEQUENCES = (list, tuple)


def first_dimension(batch: Any) -> int | None:
    """Return the first dimension of the first tensor in it that tells; None: there is none."""
    if type(batch) in SEQUENCES and batch and type(batch[0]) is Tensor:  # most are
        shape = batch[0].shape
        if shape:
            return shape[0]
    tensor = first_tensor(batch)
    return tensor.shape[0] if tensor is not None else None


def tokens_in(batch: Any) -> int | None:
    """Return how many `input_ids` it holds, padding included; None where it has no such name."""
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return ids.numel() if isinstance(ids, Tensor) else None


def first_tensor(batch: Any, depth: int = DEPTH) -> Tensor | None:
    """Return the first tensor in it that has a dimension, and is not maybe of one sample alone."""
    if isinstance(batch, Tensor):
        return batch if batch.ndim else None
    if not depth:
        return None
    if isinstance(batch, SEQUENCES):
        parts: Any = () if _are_alike(batch) else batch
    elif isinstance(batch, Mapping):
        parts = batch.values()
    else:
        return None
    for part in parts:
        # what is collated by hand holds a list of images, as no stacking could make them alike
        found = None if isinstance(part, SEQUENCES) else first_tensor(part, depth - 1)
        if found is not None:
            return found
    return None


def _are_alike(batch: Sequence[Any]) -> bool:
    """Return whether these may be the samples themselves: mappings with the same keys."""
    first = batch[0] if batch else None
    return isinstance(first, Mapping) and all(
        isinstance(one, Mapping) and one.keys() == first.keys() for one in batch
    )
