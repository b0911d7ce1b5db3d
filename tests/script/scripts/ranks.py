"""One process of several, started by torchrun or by spawned.py: DistributedDataParallel on gloo."""

import os

import torch
from digits import classifier, digits
from ending import say
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train():
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = digits()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    steps = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for images, answers in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), answers)
            loss.backward()
            optimizer.step()
            steps += 1
    if os.environ["RANK"] == "0":
        print(f"loss {loss.item():.4f}")
        say(steps, model.module)
    distributed.destroy_process_group()


if __name__ == "__main__":
    train()
