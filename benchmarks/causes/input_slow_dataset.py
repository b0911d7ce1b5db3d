"""Input: each sample takes CPU time in the one loader worker."""

import torch
from cause import for_ever, mlp, setting, train
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class Sorted(Dataset[Tensor]):
    """Samples that are sorted, time after time."""

    def __init__(self, values: int) -> None:
        self._values = values

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(self._values, generator=generator).sort().values[:256]


def main() -> None:
    """Train."""
    at = setting(__doc__)
    torch.set_num_threads(1)
    loader = DataLoader(Sorted(at.size(20_000, 100_000)), batch_size=32, num_workers=1)
    model = mlp(at.size(2048, 256), 4, inputs=256).to(at.device)
    train(at.seconds, model, for_ever(loader), lambda batch: model(batch.to(at.device)).mean())


if __name__ == "__main__":
    main()
