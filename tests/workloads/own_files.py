"""Small workloads of a user's own, as text: what tests of several folders write into files."""

HEAD = """\
import torch
from torch import nn
from gpudash import workload


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        x = torch.rand(4, generator=torch.Generator().manual_seed(index))
        return {"x": x, "y": x.sum()}


def mse(model, batch):
    return (model(batch["x"]).squeeze(1) - batch["y"]).square().mean()


"""
LINES = HEAD.count("\n")
"""What is written after the head begins on the line after these."""
PARTS = """\
    model = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LINEAR = f"""\
{HEAD}@workload(batch_size=2, num_workers=0, bias=True, depth=2, width=(8, 16), kind=("a", "b"))
def linear(values, device):
    \"\"\"Fit a sum.

    With more to say.
    \"\"\"
{PARTS}    return model, optimizer, Points(), mse
"""

LAZY = """\
from gpudash import workload


@workload(batch_size=2, num_workers=0, bias=True, depth=2, width=(8, 16), kind=("a", "b"))
def linear(values, device):
    \"\"\"Fit a sum.\"\"\"
    raise NotImplementedError  # it is described, never trained
"""
"""Levers alone: describing it takes no second, as it imports no torch."""
