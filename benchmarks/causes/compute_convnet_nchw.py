"""Compute: a residual convnet as it comes, float32 and NCHW, with images on the device already."""

from contextlib import suppress
from itertools import count

import torch
from cause import setting, until_over
from torch import nn
from torchvision.models import resnet18, resnet50


def main() -> None:
    """Train."""
    at = setting(__doc__)
    network, images, side = at.size((resnet50, 64, 224), (resnet18, 2, 48))
    model = network(num_classes=100).to(at.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    batch = torch.randn(images, 3, side, side, device=at.device)
    labels = torch.randint(100, (images,), device=at.device)
    criterion = nn.CrossEntropyLoss()
    for _ in until_over(at.seconds, count()):
        optimizer.zero_grad()
        loss = criterion(model(batch), labels)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
