"""Communication: all ranks exchange their activations before the loss; for torchrun."""

from itertools import repeat

import torch
import torch.distributed as dist
from cause import mlp, setting, train
from ranks import joined
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train."""
    at = setting(__doc__)
    with joined(at.device) as device:
        width = at.size(64, 256)
        model = DistributedDataParallel(mlp(width, 2).to(device))
        batch = torch.randn(at.size(1 << 21, 1024), width, device=device)

        def loss_of(batch: Tensor) -> Tensor:
            out: Tensor = model(batch)
            others = [torch.empty_like(out) for _ in range(dist.get_world_size())]
            dist.all_gather(others, out.detach())
            return out.mean() + torch.stack(others).mean()

        train(at.seconds, model, repeat(batch), loss_of)


if __name__ == "__main__":
    main()
