"""Copy: batches are large, ready at once, and in memory that is not pinned."""

import torch
from cause import for_ever, mlp, setting, train
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class Ready(Dataset[Tensor]):
    """The same batch each time, in memory that loader workers share."""

    def __init__(self, rows: int) -> None:
        self._batch: Tensor = torch.randn(rows, 4096).share_memory_()  # type: ignore[no-untyped-call]  # in torch

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, _index: int) -> Tensor:
        return self._batch


def main() -> None:
    """Train."""
    at = setting(__doc__)
    loader = DataLoader(Ready(at.size(16_384, 64)), batch_size=None, num_workers=2)
    model = mlp(256, 2, inputs=4096).to(at.device)
    copied = {"device": at.device, "non_blocking": True}
    train(at.seconds, model, for_ever(loader), lambda batch: model(batch.to(**copied)).mean())


if __name__ == "__main__":
    main()
