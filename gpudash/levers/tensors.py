"""Applies a function to the tensors in a call's arguments or results."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map_only


def each_tensor(change: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return the tree with each tensor changed."""
    # fast paths for most calls: PyTorch's own function takes 10 µs
    if isinstance(tree, Tensor):
        return change(tree)
    if type(tree) is tuple:
        return tuple(each_tensor(change, branch) for branch in tree)
    if type(tree) is dict and not tree:  # a call without keywords
        return tree
    return tree_map_only(Tensor, change, tree)
