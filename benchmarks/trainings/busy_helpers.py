"""Forecasts a series while helper processes simulate new ones without a pause."""

import math
import multiprocessing
import os

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn

LENGTH, BATCH, WIDTH = 64, 128, 256
HELPERS = 2 * len(os.sched_getaffinity(0)) if PLANT else 0


def simulate(newest):
    """A noisy oscillator; only the newest value is of interest."""
    x, v, t = 1.0, 0.0, 0.0
    while True:
        v -= 0.01 * (x + 0.1 * v - math.sin(0.3 * t))
        x += 0.01 * v
        t += 0.01
        newest.value = x


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(LENGTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()
        )
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.out(self.layers(x))


def main():
    processes = multiprocessing.get_context("fork")
    newest = processes.Value("d", 0.0)
    for _ in range(HELPERS):
        processes.Process(target=simulate, args=(newest,), daemon=True).start()
    model = Forecast().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    times = torch.linspace(0, 6, LENGTH + 1)
    clock = Stopwatch()
    while clock.runs:
        phase = torch.rand(BATCH, 1) * 6 + newest.value
        series = torch.sin(times + phase).to(DEVICE)
        loss = nn.functional.mse_loss(model(series[:, :-1]), series[:, -1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
