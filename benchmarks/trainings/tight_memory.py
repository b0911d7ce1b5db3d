"""Sequences of all lengths on a share of the GPU's memory that is just enough for the longest."""

import random

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn

WIDTH, LAYERS = 512, 4
SHORTEST, LONGEST = 6_000, 24_000


def network():
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)]
    return nn.Sequential(*layers)


def train(model, optimizer, length):
    rows = torch.randn(length, WIDTH, device=DEVICE)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        loss = nn.functional.mse_loss(model(rows), rows)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def limit_memory(peak):
    """This GPU is shared: take no more than the longest sequence needs, and a bit."""
    whole = torch.cuda.mem_get_info()[1]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.25 * peak / whole)


def main():
    rng = random.Random(0)
    model = network().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, LONGEST)
    if PLANT:
        limit_memory(torch.cuda.max_memory_allocated())
    clock = Stopwatch()
    while clock.runs:
        try:
            loss = train(model, optimizer, rng.randint(SHORTEST, LONGEST))
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
        clock.step()
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    print(f"{retries} retries, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
