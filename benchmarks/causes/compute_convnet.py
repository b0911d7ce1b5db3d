"""Compute: convolutions with many channels, on data that are on the device already."""

from itertools import repeat

import torch
from cause import setting, train
from torch import nn


def main() -> None:
    """Train."""
    at = setting(__doc__)
    channels = at.size(512, 64)
    layers = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(6)]
    model = nn.Sequential(*layers).to(at.device)
    batch = torch.randn(at.size(64, 8), channels, at.size(56, 28), at.size(56, 28)).to(at.device)
    train(at.seconds, model, repeat(batch), lambda batch: model(batch).mean())


if __name__ == "__main__":
    main()
