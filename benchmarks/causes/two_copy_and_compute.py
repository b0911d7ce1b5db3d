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
    of_a_layer_s = step_s(mlp(width, 1).to(at.device), data[0].to(at.device))
    layers = max(round(copy_s(data[0], at.device) / of_a_layer_s), 1)
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
