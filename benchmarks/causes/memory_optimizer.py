"""Memory bandwidth: so many weights at so small a batch that reading and updating them is all."""

from itertools import repeat

import torch
from cause import mlp, setting, train


def main() -> None:
    """Train."""
    at = setting(__doc__)
    width = at.size(12_288, 1024)
    model = mlp(width, 4).to(at.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch = torch.randn(8, width, device=at.device)
    train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean(), optimizer)


if __name__ == "__main__":
    main()
