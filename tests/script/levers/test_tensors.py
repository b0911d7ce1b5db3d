from typing import NamedTuple

import numpy as np
import torch

from gpudash.levers.training_objects import each_tensor


class Output(NamedTuple):
    loss: torch.Tensor
    name: str


def test_each_tensor_is_changed_at_any_depth():
    one, two = torch.ones(1), torch.ones(1) * 2
    for tree, changed in [
        (one, two),
        ((one, {"images": [one]}, 3), (two, {"images": [two]}, 3)),
        ({}, {}),
        (None, None),
        (Output(one, "a"), Output(two, "a")),
    ]:
        assert each_tensor(lambda tensor: tensor * 2, tree) == changed
    assert isinstance(each_tensor(torch.neg, Output(one, "a")), Output)


def test_a_value_without_a_truth_value_is_passed_on():
    array = np.ones(2)
    assert each_tensor(torch.neg, array) is array


def test_unchanged_tensors_keep_their_identity():
    tree = (torch.ones(1), {"mask": torch.ones(1)})
    kept = each_tensor(lambda tensor: tensor, tree)
    assert kept[0] is tree[0]
    assert kept[1]["mask"] is tree[1]["mask"]
