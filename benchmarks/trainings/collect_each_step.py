"""Word vectors with a dictionary in memory; garbage is collected each step, to save memory."""

import gc
import random

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

WORDS, WIDTH = (120_000, 128) if ON_GPU else (20_000, 32)
BATCH, OTHERS = 128, 8


def dictionary():
    """Each word with its neighbours."""
    rng = random.Random(0)
    return {
        f"word{at}": {"id": at, "near": [rng.randrange(WORDS) for _ in range(4)]}
        for at in range(WORDS)
    }


class WordVectors(nn.Module):
    def __init__(self):
        super().__init__()
        self.middle = nn.Embedding(WORDS, WIDTH, sparse=True)
        self.around = nn.Embedding(WORDS, WIDTH, sparse=True)

    def forward(self, middle, around):
        return (self.middle(middle).unsqueeze(1) * self.around(around)).sum(-1)


def main():
    rng = random.Random(1)
    words = dictionary()
    names = list(words)
    model = WordVectors().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    real = torch.tensor([1.0] * 4 + [0.0] * OTHERS, device=DEVICE).expand(BATCH, -1)
    clock = Stopwatch()
    while clock.runs:
        chosen = [words[rng.choice(names)] for _ in range(BATCH)]
        middle = torch.tensor([one["id"] for one in chosen], device=DEVICE)
        near = torch.tensor([one["near"] for one in chosen], device=DEVICE)
        far = torch.randint(WORDS, (BATCH, OTHERS), device=DEVICE)
        scores = model(middle, torch.cat((near, far), 1))
        loss = nn.functional.binary_cross_entropy_with_logits(scores, real)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if PLANT:
            gc.collect()
        clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
