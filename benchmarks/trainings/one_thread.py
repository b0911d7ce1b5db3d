"""A convolutional net on the CPU that was told to use one thread, on a machine with more."""

import os

import torch
from stopwatch import PLANT, Stopwatch
from torch import nn

SIDE, BATCH = 32, 16
CORES = len(os.sched_getaffinity(0))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        Residual(16),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        Residual(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1 if PLANT else CORES)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pictures = torch.rand(4, BATCH, 3, SIDE, SIDE)
    classes = torch.randint(10, (4, BATCH))
    clock = Stopwatch()
    step = 0
    while clock.runs:
        loss = nn.functional.cross_entropy(model(pictures[step % 4]), classes[step % 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
