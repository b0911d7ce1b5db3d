"""A language model's embedding is trained, and saved every 20 steps in case the job is stopped."""

import os
import tempfile

import torch
from stopwatch import DEVICE, ON_GPU, PLANT, Stopwatch
from torch import nn

TOKENS, WIDTH, BATCH = (50_000, 512, 64) if ON_GPU else (20_000, 128, 32)
LENGTH = 32
EVERY = 20
SAVES_EVERY = EVERY if PLANT else 100_000


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH, sparse=True)
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 2))

    def forward(self, tokens):
        return self.layers(self.embed(tokens).mean(1))


def save(model, optimizer, path):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, f"{path}.new")
    os.replace(f"{path}.new", path)


def main():
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    clock = Stopwatch(period=EVERY)
    step = 0
    with tempfile.TemporaryDirectory() as folder:
        while clock.runs:
            tokens = torch.randint(TOKENS, (BATCH, LENGTH), device=DEVICE)
            loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % SAVES_EVERY == 0:
                save(model, optimizer, os.path.join(folder, "last.pt"))
            clock.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
