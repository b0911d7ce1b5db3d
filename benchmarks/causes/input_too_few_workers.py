"""Input: two workers, each of which waits for a slow storage at each sample; the rest is tuned.

Batches are pinned and copied beside the host, and the workers persist.
"""

import time

import torch
from cause import for_ever, mlp, setting, train
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

STORAGE_S = 0.003


class Remote(Dataset[Tensor]):
    """Samples on a storage that is slow to answer."""

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(STORAGE_S)
        return torch.full((256,), float(index % 7))


def main() -> None:
    """Train."""
    at = setting(__doc__)
    torch.set_num_threads(1)
    loader = DataLoader(
        Remote(),
        batch_size=16,
        num_workers=2,
        pin_memory=at.size(True, False),
        persistent_workers=True,
    )
    model = mlp(at.size(2048, 256), 4, inputs=256).to(at.device)
    copied = {"device": at.device, "non_blocking": True}
    train(at.seconds, model, for_ever(loader), lambda batch: model(batch.to(**copied)).mean())


if __name__ == "__main__":
    main()
