"""Other jobs: a training that may use one core; the benchmark keeps that core busy."""

from itertools import repeat

import torch
from cause import mlp, setting, train


def main() -> None:
    """Train."""
    at = setting(__doc__)
    torch.set_num_threads(1)
    model = mlp(256, 12).to(at.device)
    batch = torch.randn(64, 256, device=at.device)
    train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean())


if __name__ == "__main__":
    main()
