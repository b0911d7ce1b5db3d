"""Communication: DDP with many weights and little work for them; for torchrun."""

from itertools import repeat

import torch
from cause import mlp, setting, train
from ranks import joined
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train."""
    at = setting(__doc__)
    with joined(at.device) as device:
        width = at.size(8192, 1024)
        model = DistributedDataParallel(mlp(width, 4).to(device))
        batch = torch.randn(8, width, device=device)
        train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean())


if __name__ == "__main__":
    main()
