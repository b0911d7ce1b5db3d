"""Sync: rows are selected by boolean masks, whose sizes the host has to wait for."""

from itertools import repeat

import torch
from cause import mlp, setting, train
from torch import Tensor


def main() -> None:
    """Train."""
    at = setting(__doc__)
    width = at.size(1024, 256)
    model = mlp(width, 12).to(at.device)

    def loss_of(batch: Tensor) -> Tensor:
        losses = []
        for layer in model:
            batch = layer(batch)
            losses.append(batch[batch[:, 0] > -1e9].mean() + batch[batch > 1e9].sum())
        return torch.stack(losses).mean()

    batch = torch.randn(at.size(8192, 64), width, device=at.device)
    train(at.seconds, model, repeat(batch), loss_of)


if __name__ == "__main__":
    main()
