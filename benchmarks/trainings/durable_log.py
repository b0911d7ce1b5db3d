"""Keeps all predictions on disk, safe from a power cut, while it trains a classifier."""

import os
import tempfile

import numpy as np
import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, BATCH = (1024, 512) if ON_GPU else (64, 32)
BYTES = 4_000_000


class Journal:
    """A file of records that starts again at its begin once it is long."""

    def __init__(self, path):
        self.file = open(path, "wb", buffering=0)
        self.pad = np.random.default_rng(0).bytes(BYTES)

    def add(self, step):
        if self.file.tell() > 10 * BYTES:
            self.file.seek(0)
        self.file.write(step.to_bytes(8, "little"))
        if PLANT:
            self.file.write(self.pad)
            os.fsync(self.file.fileno())


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.randn(8, BATCH, WIDTH, device=DEVICE)
    classes = torch.randint(10, (8, BATCH), device=DEVICE)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        journal = Journal(os.path.join(folder, "journal.bin"))
        clock = Stopwatch()
        step = 0
        while clock.runs:
            loss = nn.functional.cross_entropy(model(rows[step % 8]), classes[step % 8])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            journal.add(step)
            step += 1
            clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
