"""A deep residual net whose author times each layer by hooks, and looks at percentiles."""

import random
import time
from collections import defaultdict, deque

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH, DEPTH, BATCH = (512, 30, 256) if ON_GPU else (64, 24, 32)
KEPT = 3000


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


def some_times():
    """As after some epochs."""
    return deque((random.random() for _ in range(KEPT)), maxlen=KEPT)


class LayerTimes:
    """How long after each other the layers are called."""

    def __init__(self):
        self.seen = defaultdict(some_times)
        self.p95 = {}
        self.last_s = time.perf_counter()

    def watch(self, name, module):
        def note(_module, _inputs, _output):
            now_s = time.perf_counter()
            self.seen[name].append(now_s - self.last_s)
            self.last_s = now_s
            if PLANT:
                ordered = sorted(self.seen[name])
                self.p95[name] = ordered[int(0.95 * KEPT)]

        module.register_forward_hook(note)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(DEPTH)), nn.Linear(WIDTH, 10)).to(DEVICE)
    times = LayerTimes()
    for name, module in model.named_children():
        times.watch(name, module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    rows = torch.randn(BATCH, WIDTH, device=DEVICE)
    classes = torch.randint(10, (BATCH,), device=DEVICE)
    clock = Stopwatch()
    while clock.runs:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(rows), classes)
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"{len(times.seen)} layers, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
