"""Other jobs: loader workers and training share one core; the benchmark keeps that core busy."""

import torch
from cause import for_ever, mlp, setting, train
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class Random(Dataset[Tensor]):
    """Samples that are drawn anew."""

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, _index: int) -> Tensor:
        return torch.randn(64, 256)


def main() -> None:
    """Train."""
    at = setting(__doc__)
    torch.set_num_threads(1)
    loader = DataLoader(Random(), batch_size=8, num_workers=2)
    model = mlp(256, 4).to(at.device)
    train(at.seconds, model, for_ever(loader), lambda batch: model(batch.to(at.device)).mean())


if __name__ == "__main__":
    main()
