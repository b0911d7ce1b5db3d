"""Copy: the script itself copies large tensors to the device, from memory that is not pinned."""

from contextlib import suppress
from itertools import cycle

import torch
from cause import mlp, setting, until_over


def main() -> None:
    """Train."""
    at = setting(__doc__)
    rows = at.size(16_384, 256)
    data = [torch.randn(rows, 4096) for _ in range(2)]
    model = mlp(64, 2, inputs=4096).to(at.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for features in until_over(at.seconds, cycle(data)):
        optimizer.zero_grad()
        model(features.to(at.device)).mean().backward()
        optimizer.step()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
