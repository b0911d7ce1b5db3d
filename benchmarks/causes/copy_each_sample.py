"""Copy: each sample of a batch is copied alone, from memory that is not pinned."""

import torch
from cause import for_ever, mlp, setting, train
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class Ready(Dataset[list[Tensor]]):
    """The same samples each time."""

    def __init__(self, samples: int, values: int) -> None:
        self._batch = list(torch.randn(samples, values))

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, _index: int) -> list[Tensor]:
        return self._batch


def main() -> None:
    """Train."""
    at = setting(__doc__)
    loader = DataLoader(Ready(*at.size((64, 1 << 20), (8, 1 << 12))), batch_size=None)
    model = mlp(64, 2, inputs=at.size(1 << 20, 1 << 12)).to(at.device)

    def loss_of(batch: list[Tensor]) -> Tensor:
        loss: Tensor = model(torch.stack([sample.to(at.device) for sample in batch])).mean()
        return loss

    train(at.seconds, model, for_ever(loader), loss_of)


if __name__ == "__main__":
    main()
