"""Rare classes are drawn more often; an epoch is short, but all its draws are made before it."""

from itertools import islice

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

ROWS, BATCH, STEPS = 1_000_000, 64, 30


def loader():
    rows = torch.randn(ROWS, 16)
    classes = (rows[:, 0] > 2).long()
    share = classes.bincount() / ROWS
    draws = ROWS if PLANT else STEPS * BATCH
    sampler = WeightedRandomSampler(1 / share[classes], num_samples=draws)
    return DataLoader(TensorDataset(rows, classes), batch_size=BATCH, sampler=sampler)


def train(model, optimizer, batches, clock):
    for rows, classes in islice(batches, STEPS):
        loss = nn.functional.cross_entropy(model(rows.to(DEVICE)), classes.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    batches = loader()
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    clock = Stopwatch(period=STEPS)
    losses = []
    while clock.runs:
        losses.append(train(model, optimizer, batches, clock))
    print(f"{len(losses)} epochs, loss {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
