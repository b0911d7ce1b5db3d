"""Trains until SIGTERM or Ctrl-C, then saves `last.pt` in the folder and exits with 7."""

import itertools
import signal
import sys

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy

stop = []
signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
torch.manual_seed(0)
images, answers = digits().tensors
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
try:
    for step in itertools.count(1):
        at = slice(32 * (step % 32), 32 * (step % 32 + 1))
        optimizer.zero_grad()
        cross_entropy(model(images[at]), answers[at]).backward()
        optimizer.step()
        if step == 5:
            print("training", flush=True)
        if stop:
            break
except KeyboardInterrupt:
    stop.append(signal.SIGINT)
torch.save(model.state_dict(), "last.pt")
print(f"stopped by {signal.Signals(stop[0]).name}")
say(step, model)
sys.exit(7)
