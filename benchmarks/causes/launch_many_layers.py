"""Launching: many layers, each with little to do, and weights that are updated one by one."""

from itertools import repeat

import torch
from cause import mlp, setting, train


def main() -> None:
    """Train."""
    at = setting(__doc__)
    model = mlp(128, 150).to(at.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, foreach=False)
    batch = torch.randn(32, 128, device=at.device)
    train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean(), optimizer)


if __name__ == "__main__":
    main()
