"""Which device a training computes on if its tensors are on several."""

import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from gpudash.script.roots import device_of


def test_the_device_is_a_cpu_only_if_all_tensors_are_there():
    with FakeTensorMode():  # no GPU is needed
        embedding, network = nn.Embedding(2, 2), nn.Linear(2, 2, device="cuda")
        offloaded = torch.optim.SGD(embedding.parameters())
        loss = torch.ones((), device="cuda")
        assert device_of([embedding, network], [], None).type == "cuda"
        assert device_of([embedding], [offloaded], loss).type == "cuda"
        assert device_of([embedding], [offloaded], None).type == "cpu"


def test_the_meta_device_is_never_the_training_device():
    assert device_of([nn.Linear(2, 2, device="meta")], [], None).type == "cpu"
