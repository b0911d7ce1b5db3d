"""Large scans are copied to the device from ordinary memory."""

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

SCANS, SIDE, BATCH = (256, 512, 64) if ON_GPU else (16, 128, 4)


def scans():
    """All of them are in memory; page-locked where that is wanted."""
    every = torch.rand(SCANS, 1, SIDE, SIDE)
    return every if PLANT or not ON_GPU else every.pin_memory()


def network():
    return nn.Sequential(
        nn.AvgPool2d(8),
        nn.Conv2d(1, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 1),
    )


def main():
    torch.manual_seed(0)
    every = scans()
    dose = every.mean((1, 2, 3)).unsqueeze(1).to(DEVICE)
    model = network().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    clock = Stopwatch()
    step = 0
    while clock.runs:
        first = step * BATCH % SCANS
        part = slice(first, first + BATCH)
        batch = every[part].to(DEVICE, non_blocking=True)
        loss = nn.functional.mse_loss(model(batch), dose[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        clock.step()
    print(f"loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
