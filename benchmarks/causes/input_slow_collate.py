"""Input: batches are put together in the training process itself, by a slow collate function."""

import torch
from cause import for_ever, mlp, setting, train
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


def padded(samples: list[tuple[Tensor]]) -> Tensor:
    """Return the batch, padded value by value."""
    rows = [[float(value) for value in sample] + [0.0] * 128 for (sample,) in samples]
    return torch.tensor(rows)


def main() -> None:
    """Train."""
    at = setting(__doc__)
    samples = TensorDataset(torch.randn(1 << 14, 128))
    loader = DataLoader(samples, batch_size=64, num_workers=0, collate_fn=padded)
    model = mlp(at.size(2048, 256), 4, inputs=256).to(at.device)
    train(at.seconds, model, for_ever(loader), lambda batch: model(batch.to(at.device)).mean())


if __name__ == "__main__":
    main()
