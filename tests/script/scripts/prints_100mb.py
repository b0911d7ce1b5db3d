"""Prints 100 MB, `python prints_100mb.py [MB]` another amount, while it trains."""

import sys

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(0)
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(digits(), batch_size=32, shuffle=True)
line = "x" * 99 + "\n"
for images, answers in loader:
    optimizer.zero_grad()
    cross_entropy(model(images), answers).backward()
    optimizer.step()
    for _ in range(10_000 * megabytes // len(loader)):
        sys.stdout.write(line)
print("the last line")
say(len(loader), model)
