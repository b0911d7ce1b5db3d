"""Compute: a convnet with all its levers moved already: none of them is to be proposed again.

It has bf16 by autocast, channels_last, a fused optimizer, and many workers that pin their batches.
"""

from contextlib import suppress

import torch
from cause import for_ever, setting, until_over
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet50, squeezenet1_1


class Images(Dataset[tuple[Tensor, int]]):
    """Images of bytes that are in memory already."""

    def __init__(self, side: int) -> None:
        self._images = torch.randint(256, (64, 3, side, side), dtype=torch.uint8)

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._images[index % len(self._images)], index % 100


def main() -> None:
    """Train."""
    at = setting(__doc__)
    network, images, side, workers = at.size((resnet50, 64, 176, 8), (squeezenet1_1, 2, 32, 1))
    loader = DataLoader(
        Images(side),
        batch_size=images,
        num_workers=workers,
        pin_memory=at.size(True, False),
        persistent_workers=True,
    )
    model = network(num_classes=100).to(at.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    criterion = nn.CrossEntropyLoss()
    for bytes_, labels in until_over(at.seconds, for_ever(loader)):
        batch = bytes_.to(at.device, non_blocking=True).float().div_(255)
        batch = batch.to(memory_format=torch.channels_last)
        with torch.autocast(at.device.type, dtype=torch.bfloat16):
            loss = criterion(model(batch), labels.to(at.device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
