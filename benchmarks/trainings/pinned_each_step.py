"""Volumes in ordinary memory; each batch is pinned in the loop before it is copied."""

import random

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

VOLUMES, SIDE = (512, 64) if ON_GPU else (64, 16)
FEWEST, MOST = VOLUMES // 6, VOLUMES // 4


class Pooled(nn.Module):
    """Looks at a coarse copy of a volume."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear((SIDE // 8) ** 3, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, volumes):
        return self.layers(nn.functional.avg_pool3d(volumes, 8).flatten(1))


def main():
    rng = random.Random(0)
    torch.manual_seed(0)
    volumes = torch.rand(VOLUMES, SIDE, SIDE, SIDE)
    if ON_GPU and not PLANT:
        volumes = volumes.pin_memory()
    model = Pooled().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    clock = Stopwatch()
    while clock.runs:
        count = rng.randint(FEWEST, MOST)
        first = rng.randrange(VOLUMES - count)
        batch = volumes[first : first + count]
        if PLANT and ON_GPU:
            batch = batch.pin_memory()
        batch = batch.to(DEVICE, non_blocking=True)
        loss = nn.functional.mse_loss(model(batch), batch.mean((1, 2, 3)).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
