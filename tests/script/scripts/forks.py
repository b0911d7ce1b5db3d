"""Forks in mid-training: the child trains on with its copy, and the parent waits for it."""

import os

import torch
from digits import classifier, digits
from ending import say
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
images, answers = digits().tensors
model = classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def train(steps):
    for step in range(steps):
        at = slice(32 * (step % 32), 32 * (step % 32 + 1))
        optimizer.zero_grad()
        cross_entropy(model(images[at]), answers[at]).backward()
        optimizer.step()


train(20)
child = os.fork()
if child == 0:
    train(10)
    os._exit(0)
_, status = os.waitpid(child, 0)
train(20)
print(f"the child ended with {os.waitstatus_to_exitcode(status)}")
say(40, model)
