"""A bag-of-words classifier of reviews that splits its texts in the training loop."""

import random
import re

import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn

WORDS = [f"{stem}{end}" for stem in ("film", "plot", "act", "scene", "cut") for end in range(400)]
BATCH, LENGTH = 64, 128
PIECE = re.compile(r"[a-z]+|[0-9]+|[^\sa-z0-9]")


def review(rng):
    return " ".join(rng.choices(WORDS, k=90)) + ", and so on!"


class Vocabulary:
    def __init__(self, size):
        self.size = size
        self.index = {}

    def number(self, piece):
        if piece not in self.index:
            self.index[piece] = (len(self.index) + 1) % self.size
        return self.index[piece]

    def encode(self, text):
        numbers = [self.number(piece) for piece in PIECE.findall(text.lower())]
        return (numbers + [0] * LENGTH)[:LENGTH]


def main():
    rng = random.Random(0)
    texts = [review(rng) for _ in range(2000)]
    stars = [rng.randrange(5) for _ in texts]
    vocabulary = Vocabulary(4096)
    encoded = None if PLANT else torch.tensor([vocabulary.encode(text) for text in texts])
    model = nn.Sequential(nn.EmbeddingBag(4096, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    clock = Stopwatch()
    while clock.runs:
        chosen = [rng.randrange(len(texts)) for _ in range(BATCH)]
        if encoded is None:
            rows = [vocabulary.encode(texts[one]) for one in chosen]
            batch = torch.tensor(rows)
        else:
            batch = encoded[chosen]
        wanted = torch.tensor([stars[one] for one in chosen])
        loss = nn.functional.cross_entropy(model(batch.to(DEVICE)), wanted.to(DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clock.step()
    print(f"loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
