"""Learns an embedding of signals with triplets; the loss takes one anchor after the other."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

BATCH, CLASSES = (96, 12) if ON_GPU else (48, 8)
MARGIN = 0.3


def embedder():
    return nn.Sequential(
        nn.Conv1d(1, 32, 7, stride=4),
        nn.ReLU(),
        nn.Conv1d(32, 64, 5, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(256, 64),
    )


def loss_by_anchor(points):
    """The nearest other class against the own one, for each anchor."""
    total = points.new_zeros(())
    count = len(points)
    for anchor in range(count):
        same = points[(anchor + CLASSES) % count]
        other = points[(anchor + 1) % count]
        near = (points[anchor] - same).pow(2).sum()
        far = (points[anchor] - other).pow(2).sum()
        total = total + nn.functional.relu(near - far + MARGIN)
    return total / count


def loss_at_once(points):
    near = (points - points.roll(-CLASSES, 0)).pow(2).sum(1)
    far = (points - points.roll(-1, 0)).pow(2).sum(1)
    return nn.functional.relu(near - far + MARGIN).mean()


def main():
    torch.manual_seed(0)
    model = embedder().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    labels = torch.arange(BATCH, device=DEVICE) % CLASSES
    waves = torch.randn(CLASSES, 1, 1024, device=DEVICE)
    triplet = loss_by_anchor if PLANT else loss_at_once
    clock = Stopwatch()
    while clock.runs:
        signals = waves[labels] + 0.3 * torch.randn(BATCH, 1, 1024, device=DEVICE)
        optimizer.zero_grad()
        points = nn.functional.normalize(model(signals))
        loss = triplet(points)
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
