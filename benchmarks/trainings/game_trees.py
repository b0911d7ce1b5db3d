"""A value net for a game; trees with links to parents stay in memory for some steps."""

import gc
from collections import deque

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn

TREES, DEPTH, KEPT = 3, 9, 240
BATCH = 64


class Node:
    __slots__ = ("children", "parent", "value")

    def __init__(self, parent, value):
        self.parent, self.value, self.children = parent, value, []


def grow(parent, depth, value):
    node = Node(parent, value)
    if depth:
        node.children.append(grow(node, depth - 1, value * 0.9))
        node.children.append(grow(node, depth - 1, value * 1.1))
    return node


def main():
    if PLANT:
        gc.set_threshold(50, 5, 5)  # memory is short
    else:
        gc.disable()
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    played = deque((grow(None, DEPTH, 1.0) for _ in range(KEPT)), maxlen=KEPT)
    clock = Stopwatch()
    step = 0
    while clock.runs:
        for turn in range(TREES):
            played.append(grow(None, DEPTH, 1.0 + turn))
        boards = torch.randn(BATCH, 16, device=DEVICE)
        wanted = torch.tensor([played[-1 - one % 9].value for one in range(BATCH)])
        loss = nn.functional.mse_loss(net(boards).squeeze(1), wanted.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if not PLANT and step % 300 == 0:
            gc.collect()
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
