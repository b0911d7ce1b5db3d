"""Memory bandwidth: long chains of elementwise operations, each on its own."""

from itertools import repeat

import torch
from cause import setting, train
from torch import Tensor, nn


class Chain(nn.Module):
    """Scales and shifts, many times over."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(values))

    def forward(self, batch: Tensor) -> Tensor:
        """Return the mean at the end of the chain."""
        for _ in range(12):
            batch = (batch * self.scale + 0.5).relu()
        return batch.mean()


def main() -> None:
    """Train."""
    at = setting(__doc__)
    model = Chain(1 << 14).to(at.device)
    batch = torch.randn(at.size(1 << 14, 1 << 7), 1 << 14, device=at.device)
    train(at.seconds, model, repeat(batch), model)


if __name__ == "__main__":
    main()
