"""Two limits: a step is half a copy from memory that is not pinned, and half matrix products.

There is no DataLoader. The number of layers follows from how long the copy takes, as measured.
"""

import time
from contextlib import suppress
from itertools import cycle
from statistics import median

import torch
from cause import mlp, setting, step_s, until_over
from torch import Tensor

COPIES = 5
LAYERS = 5
"""Are compared with one layer, which has no gradient of its inputs to compute."""


def copy_s(features: Tensor, device: torch.device) -> float:
    """Return how long a copy takes."""
    times_s = []
    for _ in range(COPIES):
        began_s = time.perf_counter()
        features.to(device, copy=True)[0, 0].item()
        times_s.append(time.perf_counter() - began_s)
    return median(times_s)


def main() -> None:
    """Train."""
    at = setting(__doc__)
    rows, width = at.size((16_384, 1024), (4096, 64))
    data = [torch.randn(rows, width) for _ in range(2)]
    first = data[0].to(at.device)
    one_s, many_s = (step_s(mlp(width, layers).to(at.device), first) for layers in (1, LAYERS))
    left_s = copy_s(data[0], at.device) - one_s
    layers = 1 + max(round(left_s * (LAYERS - 1) / max(many_s - one_s, 1e-6)), 0)
    model = mlp(width, layers).to(at.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for features in until_over(at.seconds, cycle(data)):
        on_device = features.to(at.device, copy=True)
        optimizer.zero_grad()
        model(on_device).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
