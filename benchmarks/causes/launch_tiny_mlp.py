"""Launching: a tiny network at batch 4."""

from itertools import repeat

import torch
from cause import mlp, setting, train


def main() -> None:
    """Train."""
    at = setting(__doc__)
    model = mlp(64, 4).to(at.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(4, 64, device=at.device)
    train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean(), optimizer)


if __name__ == "__main__":
    main()
