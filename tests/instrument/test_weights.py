"""The sizes of what an optimizer reads and writes in a step."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from gpudash.instrument.weights import weights_of
from gpudash.protocol.inspections import Weights

KIB = 2**-10  # MiB


def trained(model, kind, **options):
    optimizer = kind(model.parameters(), **options)
    model(torch.ones(1, model.in_features)).sum().backward()
    optimizer.step()
    return optimizer


@pytest.mark.parametrize(
    ("kind", "options", "moments"),
    [(SGD, {}, 0), (SGD, {"momentum": 0.9}, 1), (AdamW, {}, 2), (AdamW, {"amsgrad": True}, 3)],
)
def test_weights_and_state_have_the_expected_sizes(kind, options, moments):
    optimizer = trained(nn.Linear(64, 64, bias=False), kind, lr=0.1, **options)
    assert weights_of([optimizer]) == Weights(mib=16 * KIB, state_mib=16 * KIB * moments)


def test_two_optimizers_both_count_but_shared_weights_only_once():
    model = nn.Linear(64, 64, bias=False)
    one, same = (trained(model, SGD, lr=0.1) for _ in range(2))
    other = trained(nn.Linear(64, 32, bias=False), SGD, lr=0.1)
    assert weights_of([one, same, other]).mib == 24 * KIB


def test_frozen_weights_are_not_updated():
    model = nn.Linear(64, 64)
    model.weight.requires_grad_(False)
    assert weights_of([trained(model, SGD, lr=0.1)]).mib == 64 * 4 / 2**20


class Own(Optimizer):
    """An optimizer whose state has more than tensors of weights."""

    def __init__(self, weights):
        super().__init__(weights, {})
        self.state["rounds"] = 3


class Around(Optimizer):
    """An optimizer that wraps another one."""

    def __init__(self, inner):
        self.inner = inner


def test_of_a_custom_optimizer_only_the_usual_state_counts():
    own = Own(nn.Linear(64, 64, bias=False).parameters())
    assert weights_of([own, Around(own)]) == Weights(mib=16 * KIB, state_mib=0)
    sparse = nn.Parameter(torch.eye(64).to_sparse())
    assert weights_of([SGD([sparse], lr=0.1)]).mib == 16 * KIB  # with their dense size
    assert weights_of([]) is None
