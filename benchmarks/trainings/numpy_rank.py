"""Two towers of a recommender; the rank of the newest embeddings is watched with NumPy."""

import numpy as np
import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WIDTH = 512 if ON_GPU else 128
USERS, ITEMS, BATCH = 5000, 3000, 256
WATCHED = 256


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Sequential(nn.Embedding(USERS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.item = nn.Sequential(nn.Embedding(ITEMS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU())

    def forward(self, users, items):
        return self.user(users) @ self.item(items).T


def effective_rank(window):
    singular = np.linalg.svd(window, compute_uv=False)
    share = singular / singular.sum()
    return float(np.exp(-(share * np.log(share + 1e-12)).sum()))


def main():
    rng = np.random.default_rng(0)
    model = Towers().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    window = rng.standard_normal((WATCHED, WATCHED))
    target = torch.arange(BATCH, device=DEVICE)
    ranks = []
    clock = Stopwatch()
    step = 0
    while clock.runs:
        users = torch.from_numpy(rng.integers(0, USERS, BATCH)).to(DEVICE)
        items = torch.from_numpy(rng.integers(0, ITEMS, BATCH)).to(DEVICE)
        loss = nn.functional.cross_entropy(model(users, items), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window[step % WATCHED] = rng.standard_normal(WATCHED)
        if PLANT or step % 100 == 0:
            ranks.append(effective_rank(window))
        step += 1
        clock.step()
    print(f"rank {ranks[-1]:.1f}, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
