"""Which backward passes have sent gradients, in a group of one process."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpudash.script.gradient_sync import GradientSync


@pytest.mark.usefixtures("group")
def test_a_backward_pass_that_is_not_followed_counts_no_gradients():
    model = DistributedDataParallel(nn.Linear(4, 4))
    sync = GradientSync(lambda *_: False)
    sync.update([model])

    def backward(*, follows):
        loss = model(torch.ones(1, 4)).sum()
        if follows:
            sync.pass_begins()
        loss.backward()
        return sync.pass_ends()

    assert [backward(follows=True) for _ in range(3)] == [False, True, True]
    sync.step_ends(None)
    assert sync.collectives(None).mib is not None
    assert not backward(follows=False)
    sync.step_ends(None)
    assert sync.collectives(None).mib is None
