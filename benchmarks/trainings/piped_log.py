"""Sends its activations through a pipe to a program that compresses them."""

import subprocess
import sys

import numpy as np
import torch
from stopwatch import DEVICE, PLANT, Stopwatch
from torch import nn

WIDTH, BATCH = 256, 128
VALUES = 100_000 if PLANT else 100
KEEPER = """
import sys, zlib
packer = zlib.compressobj(6)
while chunk := sys.stdin.buffer.read(65536):
    packer.compress(chunk)
"""


class Pipe:
    def __init__(self):
        command = (sys.executable, "-c", KEEPER)
        self.program = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.values = np.random.default_rng(0).standard_normal(VALUES).astype(np.float32)

    def send(self):
        self.program.stdin.write(self.values.tobytes())
        self.program.stdin.flush()

    def close(self):
        self.program.kill()
        self.program.wait()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows = torch.randn(BATCH, WIDTH, device=DEVICE)
    classes = torch.randint(10, (BATCH,), device=DEVICE)
    pipe = Pipe()
    clock = Stopwatch()
    try:
        while clock.runs:
            loss = nn.functional.cross_entropy(model(rows), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pipe.send()
            clock.step()
    finally:
        pipe.close()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
