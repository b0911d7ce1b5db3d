"""Sync: the script reads a number from the device after each layer, and one for each gradient."""

from collections.abc import Iterable
from itertools import repeat

import torch
from cause import mlp, setting, train
from torch import Tensor


def main() -> None:
    """Train."""
    at = setting(__doc__)
    width = at.size(2048, 256)
    model = mlp(width, 16).to(at.device)
    largest: list[float | Tensor] = []

    def log(values: Iterable[Tensor]) -> None:
        largest.extend(values if at.is_mended else (each.item() for each in values))

    def loss_of(batch: Tensor) -> Tensor:
        for layer in model:
            batch = layer(batch)
            log([batch.detach().abs().max()])
        return batch.mean()

    def log_gradients(_step: int) -> None:
        largest.clear()
        log(each.grad.norm() for each in model.parameters() if each.grad is not None)

    batch = torch.randn(at.size(1024, 256), width, device=at.device)
    train(at.seconds, model, repeat(batch), loss_of, after_step=log_gradients)


if __name__ == "__main__":
    main()
