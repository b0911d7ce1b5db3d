"""Compute: large matrix products, on data that are on the device already."""

from itertools import repeat

import torch
from cause import mlp, setting, train


def main() -> None:
    """Train."""
    at = setting(__doc__)
    width = at.size(8192, 1024)
    model = mlp(width, 4).to(at.device)
    batch = torch.randn(at.size(8192, 512), width, device=at.device)
    train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean())


if __name__ == "__main__":
    main()
