"""Asks for the number of epochs, and shows progress on one line of the error stream."""

import sys

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

epochs = int(input("How many epochs? "))
torch.manual_seed(0)
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(digits(), batch_size=32, shuffle=True)
for epoch in range(epochs):
    for number, (images, answers) in enumerate(loader, start=1):
        optimizer.zero_grad()
        cross_entropy(model(images), answers).backward()
        optimizer.step()
        bar = "#" * (20 * number // len(loader))
        print(f"\repoch {epoch} |{bar:20}|", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
print(f"a terminal: {sys.stdin.isatty()}")
say(epochs * len(loader), model)
