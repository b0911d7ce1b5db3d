"""Samples lie in a store that takes some milliseconds for each; two workers fetch them."""

import time
import zlib

import numpy as np
import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH, WORKERS = 24, 16, 2
ANSWER_S = 0.004 if PLANT else 0.0


class Store:
    """Stands for files on another machine."""

    def __init__(self):
        rng = np.random.default_rng(0)
        pictures = rng.integers(0, 255, (256, SIDE, SIDE), dtype=np.uint8)
        self.files = [zlib.compress(one.tobytes()) for one in pictures]

    def get(self, at):
        if ANSWER_S:
            time.sleep(ANSWER_S)
        return self.files[at % len(self.files)]


class Digits(Dataset):
    def __init__(self):
        self.store = Store()

    def __len__(self):
        return 200_000

    def __getitem__(self, at):
        data = zlib.decompress(self.store.get(at))
        picture = np.frombuffer(data, dtype=np.uint8).reshape(1, SIDE, SIDE)
        return torch.from_numpy(picture / np.float32(255)), at % 10


def main():
    torch.manual_seed(0)
    batches = DataLoader(Digits(), batch_size=BATCH, num_workers=WORKERS)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(10)
    ).to(DEVICE)
    model(torch.zeros(1, 1, SIDE, SIDE, device=DEVICE))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    clock = Stopwatch()
    for pictures, digits in batches:
        loss = nn.functional.cross_entropy(model(pictures.to(DEVICE)), digits.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not clock.step():
            break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
