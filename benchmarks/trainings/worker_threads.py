"""Loader workers that blur pictures with all cores each, as if they were alone."""

import os

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CORES = len(os.sched_getaffinity(0))
WORKERS = min(8, CORES)
SIDE, BATCH = 224, 16


class Blurred(Dataset):
    def __init__(self):
        self.pictures = torch.rand(64, 3, SIDE, SIDE)
        self.kernel = torch.ones(3, 1, 5, 5) / 25

    def __len__(self):
        return 100_000

    def __getitem__(self, at):
        picture = self.pictures[at % len(self.pictures)].unsqueeze(0)
        for _ in range(3):
            picture = nn.functional.conv2d(picture, self.kernel, padding=2, groups=3)
        return picture[0, :, ::4, ::4].clone()


def use_all_cores(_worker):
    if PLANT:
        torch.set_num_threads(CORES)


def main():
    torch.manual_seed(0)
    batches = DataLoader(
        Blurred(), batch_size=BATCH, num_workers=WORKERS, worker_init_fn=use_all_cores
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()
    )
    model.append(nn.Linear(256, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    classes = torch.randint(10, (BATCH,), device=DEVICE)
    clock = Stopwatch()
    for pictures in batches:
        loss = nn.functional.cross_entropy(model(pictures.to(DEVICE)), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not clock.step():
            break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
